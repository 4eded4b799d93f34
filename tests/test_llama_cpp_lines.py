"""Command lines as people publish them: each starts and answers, with the model's name replaced by the demo pair's.

tests/llama_cpp_lines.json has them with their sources. M and D stand for the models, T for a template's file.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from sizes import mostly_proof
from vision_models import projector

from duo.cli.main import _command_of, command_named, main
from duo.cli.options import given_options
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS, SERVE_OPTIONS
from duo.options.validate import engine_options, generate_options, serve_options

LINES: list[dict[str, str]] = json.loads((Path(__file__).parent / "llama_cpp_lines.json").read_text("utf-8"))
TARGET, DRAFT = map(str, demo_pair())
SERVERS = ("llama-server", "server")
# What lines say that duo does not have, or takes otherwise, and duo's answer.
REFUSED = {
    "--image": "llama.cpp's --image is not in duo",
    "--instruct": "unknown option --instruct",  # llama.cpp has removed these
    "-ins": "unknown option -ins",
    "--chatml": "unknown option --chatml",
    "--no-penalize-nl": "unknown option --no-penalize-nl",
    "--embd-bge-small-en-default": "unknown option --embd-bge-small-en-default",
    "--direct-io": "unknown option --direct-io",
    "-ns": "-ns is an option of llama-parallel",
    "-sm tensor": "split_mode",
    "-np 4096": "n_parallel",
    "--control-vector-scaled ./control_vector.gguf 0.8": "unexpected extra argument (0.8)",
    "--log-colors --flash-attn": "log-colors",
}
# What needs hosts, devices or files that a test cannot make.
ELSEWHERE = (
    "--rpc", "--device", "--device-draft", "-dev", "-devd", "--lora", "--rerank", "--reranking", "-hf", "--hf-repo",
    "--fim-qwen-7b-default", "draft-mtp", "draft-eagle3", "--lookup-cache-static",
)  # fmt: skip
LONGEST = 2048  # tokens of a context


def ids(x: dict[str, str]) -> str:
    return f"{x['program']}-{LINES.index(x)}"


def words(x: dict[str, str], folder: Path) -> list[str]:
    """Arguments for duo. Contexts are shorter, because the pair was made for 512 tokens."""
    names = {"M": TARGET, "D": DRAFT, "T": str(folder / "chat-template.jinja")}
    out = [names.get(word, word) for word in shlex.split(x["line"])]
    for i, word in enumerate(out[1:], 1):
        if out[i - 1] in ("-c", "--ctx-size", "-cd", "--ctx-size-draft", "--ctx_size") and word.isdigit():
            out[i] = str(min(int(word), LONGEST))
        if out[i - 1] == "--mmproj":
            out[i] = str(projector(folder / "mmproj.gguf", "mlp", read_header(TARGET).n_embd))
    return out


def command_for(x: dict[str, str], args: list[str]) -> str:
    return "serve" if x["program"] in SERVERS else _command_of(args)


def refusal(x: dict[str, str]) -> str:
    """What duo says of the line; empty: it takes it."""
    said = f" {' '.join(shlex.split(x['line']))} "
    return next((why for what, why in REFUSED.items() if f" {what} " in said), "")


def checked(command: str, args: list[str]) -> None:
    """All that is checked before models are loaded."""
    found = command_named(command)
    assert found is not None
    with found.make_context(command, list(args)) as ctx:
        engine_options(given_options(ctx.params, ENGINE_OPTIONS))
        generate_options(given_options(ctx.params, GENERATE_OPTIONS))
        if command == "serve":
            serve_options(given_options(ctx.params, SERVE_OPTIONS))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files that lines name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat-template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    )
    for name in ("prompts/chat-with-qwen.txt", "prompts/chat-with-bob.txt", "prompts/reason-act.txt", "prompt.txt",
                 "current-prompt.txt", "__llama.cpp_example_tmp__.txt", "prompts/alpaca.txt", "text.prompt",
                 "pirate_prompt.txt"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Once upon a time there was a king.\nUser: Hello.\nBob:")
    (tmp_path / "grammars").mkdir()
    for name in ("some-grammar.gbnf", "json.gbnf"):
        (tmp_path / "grammars" / name).write_text('root ::= "yes" | "no"')
    (tmp_path / "kvcache").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "demo.gguf").symlink_to(TARGET)
    (tmp_path / "models.ini").write_text(f"[*]\nc = 512\n[demo]\nmodel = {TARGET}\n")
    return tmp_path


def test_there_are_many_and_their_sources() -> None:
    assert len(LINES) >= 150 and all(x["source"].startswith("https://") for x in LINES)
    assert len({(x["program"], x["line"]) for x in LINES}) == len(LINES)
    assert sum(not refusal(x) for x in LINES) >= 0.9 * len(LINES)


@pytest.mark.parametrize("x", LINES, ids=ids)
def test_a_line_is_taken(x: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.setpriority", lambda *_: None)
    args = words(x, folder)
    command = command_for(x, args)
    if why := refusal(x):
        with pytest.raises((click.ClickException, ValueError)) as e:
            checked(command, args)
        said = e.value.format_message() if isinstance(e.value, click.ClickException) else str(e.value)
        assert why in said
    else:
        checked(command, args)


def runs(x: dict[str, str]) -> bool:
    return not refusal(x) and not any(f" {what} " in f" {x['line']} " for what in ELSEWHERE)


RUN = [x for x in LINES if runs(x)]
# Each takes up to a second. The ordinary run has some of them, `make proof` all.
SOME = RUN[::20]


@pytest.mark.full
@pytest.mark.parametrize("x", mostly_proof(RUN, SOME, RUN[::10]), ids=[ids(x) for x in RUN])
def test_a_line_starts_and_answers(
    x: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setattr("os.setpriority", lambda *_: None)
    args = words(x, folder)
    if command_for(x, args) != "serve":
        prompt = [] if {"-p", "--prompt", "-f", "--file"} & {*args} or "-sys" in args else ["-p", "Once upon a time"]
        code, out, err = run(*args, *prompt, "-n", "16", stdin=b"Hello.\n")
        assert code == 0 and out.strip(), err
        return
    answers: list[Any] = []

    def run_once(self: Any) -> None:
        """In place of the loop of the server: loads what it would serve, and answers with its defaults."""
        with self._load() as d:
            if self.service.settings.embeds:
                answers.append(d.vectors([d.tokenize("Once upon a time")])[0].tolist())
            else:
                answers.append(d.generate("Once upon a time", max_tokens=8).text)

    def of_router(self: Any) -> None:
        answers.append(list(self.service.fleet.members))

    monkeypatch.setattr("duo.server.lifecycle.Serving.run", run_once)
    monkeypatch.setattr("duo.server.router.serving.RouterServing.run", of_router)
    monkeypatch.setattr("duo.server.listening.listeners", lambda _options: [])
    for i, word in enumerate(args):  # folders of somebody else's machine
        if i and args[i - 1] in ("--models-dir", "--models-preset", "--path"):
            args[i] = {"--models-preset": "models.ini"}.get(args[i - 1], "models")
        elif i and args[i - 1] == "--host" and word in ("0.0.0.0", "192.168.1.1"):
            args[i] = "127.0.0.1"  # for others duo asks for a key, or --insecure
    assert main(["serve", *args]) == 0
    assert len(answers) == 1 and answers[0]
