"""Command lines as people publish them: each starts and answers, with the model's name replaced by the demo pair's."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duo.cli.main import main
from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

TARGET, DRAFT = map(str, demo_pair())

# A line, and where it was found. M and D stand for the models, T for a template's file.
LINES = {
    # https://github.com/ggml-org/llama.cpp/pull/10455
    "llama-speculative": (
        "-m M -ngl 99 -md D -ngld 99 --draft-max 10 --draft-min 10 -p 'Please write a minesweeper game using "
        "html, js and css. Do not output any explanations.'"
    ),
    "llama-server speculative": (
        "-m M -ngl 99 --host 127.0.0.1 --port 8999 -md D -ngld 99 --draft-max 10 --draft-min 10"
    ),
    # https://github.com/ggml-org/llama.cpp/issues/12968
    "llama-speculative-simple": (
        "-c 512 -cd 512 -m M -md D -ngld 999 -ngl 999 --draft-max 3 --draft-min 3 -p 'Repeat this sentence for "
        "50 times: This is a test\\n' --color -s 123 -n 260 -t 1 -fa -ctv q8_0 -ctk q8_0"
    ),
    "llama-server -fa": (
        "-c 512 -cd 512 -m M -md D -ngld 999 -ngl 999 --draft-max 3 --draft-min 3 -t 1 -fa -ctv q8_0 -ctk q8_0"
    ),
    # https://github.com/ggml-org/llama.cpp/pull/15077
    "llama-server gpt-oss": (
        "-m M --ctx-size 0 --jinja --flash-attn --n-gpu-layers 99 --reasoning-format none --n-cpu-moe 3"
    ),
    # https://github.com/ikawrakow/ik_llama.cpp/issues/693, without that fork's own options
    "llama-server --override-tensor": (
        "--model M --ctx-size 1024 -ngl 99 --override-tensor '.*_exps\\..*=CPU' --override-tensor "
        "'.*\\.ffn_.*_exps.*=CPU' --threads 28 --threads-batch 28 --host 127.0.0.1 -fa --jinja --temp 0.6 "
        '--top-p 1.0 --chat-template-kwargs \'{"reasoning_effort": "high"}\' --port 8080'
    ),
    # https://github.com/ggml-org/llama.cpp/pull/15019
    "llama-server in llama-swap": (
        "--port 9123 --model M --chat-template-file T --jinja --mlock --flash-attn --kv-unified --swa-full "
        "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 512 --verbose --verbose-prompt --cache-type-k q4_1 "
        "--cache-type-v q4_1 --threads -1 --n-gpu-layers 99 --ctx-size 2048 --batch-size 4096 --ubatch-size "
        "4096 --temp 0.7 --min-p 0.0 --top-p 0.7 --top-k 20 --repeat-penalty 1.5 --presence_penalty 0.2 --keep "
        "32768"
    ),
    # https://pastebin.com/YD7S9RsD, its experts on a GPU left out
    "llama-server GLM-4.5-Air": (
        "-m M -c 1024 -t 5 -fa on --prio-batch 2 -ub 2048 -b 2048 -ctk q8_0 -ctv q8_0 -ngl 999 --cpu-moe "
        "--no-context-shift --no-mmap"
    ),
    # https://github.com/mikesvoboda/nemotron-v3-home-security-intelligence/issues/6262
    "llama-server in a Dockerfile": (
        "--model M --host 127.0.0.1 --port 8091 --n-gpu-layers 30 --ctx-size 1024 --parallel 2 --threads 2 "
        "--threads-batch 2 --batch-size 512 --ubatch-size 512 --cache-type-k q8_0 --cache-type-v q8_0 "
        "--cont-batching --metrics --cache-reuse 256 --flash-attn on"
    ),
    # https://github.com/meta-models/meta-oss-cookbook/pull/25
    "llama-server -a": '-m M --chat-template-kwargs \'{"reasoning_strength":"high"}\' -np 1 -a muse-glimmer',
    # https://pypi.org/project/llm-llama-server/
    "llama-server --jinja": "--jinja -m M",
    # https://github.com/ggml-org/llama.cpp/issues/10679
    "llama-server --no-warmup": "--no-warmup -m M",
    # https://github.com/containers/ramalama/pull/1477
    "llama-server ramalama": (
        "--port 8080 --model M --no-warmup --temp 0.8 --jinja --cache-reuse 256 -v --threads 4 --host 127.0.0.1"
    ),
    # https://huggingface.co/spaces/seanpedrickcase/document_redaction, without its images
    "llama-server in compose": (
        "-m M --n-gpu-layers -1 --ctx-size 1024 --fit off --temp 0.7 --top-k 20 --top-p 0.95 --min-p 0.0 "
        "--frequency-penalty 1 --presence-penalty 0.0 --chat-template-kwargs '{\"preserve_thinking\": true}' "
        "--host 127.0.0.1 --port 8080 --no-warmup --seed 42 --parallel 1 --cache-type-k q8_0 --cache-type-v "
        "q8_0"
    ),
    # https://pastebin.com/Ux4j74Vu, without its device, its proxy and its MTP layers
    "llama-server Qwen 27B": (
        "-m M -ngl 999 -c 1024 -np 1 --jinja -fa on -ctk q4_0 -ctv q4_0 --fit off -ub 512 -cram 16 -cms 128 "
        "--cache-prompt -kvu --spec-draft-n-max 2 --host 127.0.0.1 --port 8080"
    ),
    # https://wiki.nixos.org/wiki/Llama-cpp
    "llama-cli": "-m M --temp 1.0 --top-p 0.95 --top-k 40 -p 'briefly explain journalctl in one paragraph'",
    "llama-cli --repeat-penalty": (
        "-m M --temp 0.2 --top-p 0.95 --top-k 80 --repeat-penalty 1.05 -p 'briefly explain journalctl in one paragraph'"
    ),
    # https://github.com/ggml-org/llama.cpp/issues/27214
    "llama-cli -no-cnv": "-m M -ngl 0 -no-cnv -p hello",
    # https://huggingface.co/THUDM/glm-edge-4b-chat-gguf/discussions/1
    "llama-cli -cnv": "-m M -cnv --chat-template glmedge -p 'You are a helpful AI assistant.' -ngl 999",
    # https://www.mintlify.com/ggml-org/llama.cpp/inference/cli
    "llama-cli -sys": "-m M -cnv -sys 'You are a helpful coding assistant.'",
    "llama-cli --no-mmproj": "-m M --no-mmproj -p 'Hello, how are you?'",
    # https://github.com/ikawrakow/ik_llama.cpp/pull/645
    "llama-cli --samplers": "-m M -md D --top-k 1 --samplers top_k -p 'write a tic-tac-toe game in python'",
}


def words(line: str, template: Path) -> list[str]:
    return [{"M": TARGET, "D": DRAFT, "T": str(template)}.get(word, word) for word in shlex.split(line)]


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "chat-template.jinja"
    path.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
    return path


@pytest.mark.parametrize("name", LINES)
def test_a_line_starts_and_answers(
    name: str, template: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str, str]]
) -> None:
    args = words(LINES[name], template)
    if not name.startswith("llama-server"):
        code, out, err = run(*args, *([] if "-n" in args else ["-n", "16"]), stdin=b"Hello.\n")
        assert code == 0 and out.strip(), err
        return
    answers: list[str] = []

    def run_once(self: Any) -> None:
        """In place of the loop of the server: loads what it would serve, and writes a text with its defaults."""
        with self._load() as d:
            answers.append(d.generate("Once upon a time", max_tokens=8).text)

    monkeypatch.setattr("duo.server.serving.Serving.run", run_once)
    monkeypatch.setattr("duo.server.listening.listeners", lambda _options: [])
    assert main(["serve", *args]) == 0
    assert len(answers) == 1 and answers[0].strip()
