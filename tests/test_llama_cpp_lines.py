"""Command lines as people publish them: each starts and answers, with the model's name replaced by the demo pair's.

tests/llama_cpp_lines.json has them with their sources. M and D stand for the models, T for a template's file.
"""

import json
import shlex
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from sizes import mostly_daily
from vision_models import projector
from waits import HANG_S, join, wait_until

from duo.cli.main import _command_of, command_named, main, program
from duo.cli.options import given_options
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.validate import engine_options, generate_options
from duo.server.lifecycle import Serving
from duo.server.listening import ListeningSocket, is_loopback, listeners

LINES: list[dict[str, str]] = json.loads((Path(__file__).parent / "llama_cpp_lines.json").read_text("utf-8"))
TARGET, DRAFT = map(str, demo_pair())
SERVERS = ("llama-server", "server")
# What lines say that duo does not have, or takes otherwise, and duo's answer.
REFUSED = {
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


def checked(command: str, args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is checked before models are loaded and ports are opened. Raises ClickException and ValueError."""
    if command == "serve":
        monkeypatch.setattr("duo.server.listening.listeners", lambda _options: [])
        monkeypatch.setattr("duo.server.lifecycle.Serving.run", lambda _self: None)
        program.main(["serve", *args], "duo", standalone_mode=False)
        return
    found = command_named(command)
    assert found is not None
    with found.make_context(command, list(args)) as ctx:
        engine_options(given_options(ctx.params, ENGINE_OPTIONS))
        generate_options(given_options(ctx.params, GENERATE_OPTIONS))


def following(args: list[str], name: str) -> str:
    """The value of an option; empty: it is not there."""
    return next((value for word, value in pairwise(args) if word == name), "")


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


@pytest.mark.parametrize("x", mostly_daily(LINES, LINES[::3]), ids=ids)
def test_a_line_is_taken(
    x: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.setpriority", lambda *_: None)
    args = with_folders(words(x, folder))
    command = command_for(x, args)
    if why := refusal(x):
        with pytest.raises((click.ClickException, ValueError)) as e:
            checked(command, args, monkeypatch)
        said = e.value.format_message() if isinstance(e.value, click.ClickException) else str(e.value)
        assert why in said
        return
    checked(command, args, monkeypatch)
    host = following(args, "--host")
    is_open = command == "serve" and bool(host) and not is_loopback(host) and "--api-key" not in args
    warning = f"duo: --host {host} without a key: everybody who reaches the port can use the model; give --api-key"
    assert capsys.readouterr().err.count(warning) == is_open


def test_what_is_said_to_be_refused_is_in_some_line() -> None:
    said = [f" {' '.join(shlex.split(x['line']))} " for x in LINES]
    assert [what for what in REFUSED if not any(f" {what} " in line for line in said)] == []


def runs(x: dict[str, str]) -> bool:
    return not refusal(x) and not any(f" {what} " in f" {x['line']} " for what in ELSEWHERE)


def with_folders(args: list[str]) -> list[str]:
    """Those of this test in place of somebody else's."""
    mine = {"--models-dir": "models", "--path": "models", "--models-preset": "models.ini"}
    return [mine.get(before, word) for before, word in zip(["", *args], args, strict=False)]


RUN = [x for x in LINES if runs(x)]
# Each takes up to a second, a router six. The ordinary run has some for each command; `make test-daily` has all.
SOME = RUN[2::24]


@pytest.mark.full
@pytest.mark.parametrize("x", mostly_daily(RUN, SOME), ids=[ids(x) for x in RUN])
def test_a_line_starts_and_answers(
    x: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setattr("os.setpriority", lambda *_: None)
    args = with_folders(words(x, folder))
    if command_for(x, args) == "serve":
        assert answer_of_server(args, monkeypatch)
        return
    prompt = [] if {"-p", "--prompt", "-f", "--file"} & {*args} or "-sys" in args else ["-p", "Once upon a time"]
    code, out, err = run(*args, *prompt, "-n", "16", stdin=b"Hello.\n")
    assert code == 0 and out.strip(), err


def answer_of_server(args: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts the server as it was typed, but on a free port of an address that this machine has; asks it; ends it."""
    opened: list[ListeningSocket] = []
    answers: list[Any] = []
    serve = Serving.run

    def open_port(o: Any) -> list[ListeningSocket]:
        host = o["host"] if o["host"] == "0.0.0.0" else "127.0.0.1"
        opened.extend(listeners({**o, "host": host, "port": 0}))
        return opened

    def ask(serving: Serving) -> None:
        key = following(args, "--api-key")
        url = opened[0].url("http").replace("0.0.0.0", "127.0.0.1") + serving.service.settings.api_prefix
        with httpx.Client(base_url=url, headers={"X-Api-Key": key} if key else {}, timeout=HANG_S) as client:
            try:
                wait_until(lambda: serving.is_listening)
                wait_until(lambda: client.get("/health").status_code == 200)
                answers.append(answer_to(client, serving.service.settings.embeds))
            finally:
                serving.end()
                serving.end()  # at once

    def run_and_ask(serving: Serving) -> None:
        client = threading.Thread(target=ask, args=(serving,), name="client")
        client.start()
        serve(serving)
        join(client)

    monkeypatch.setattr("duo.server.listening.listeners", open_port)
    monkeypatch.setattr(Serving, "run", run_and_ask)
    assert main(["serve", *args]) == 0
    return answers[0]


def answer_to(client: httpx.Client, embeds: bool) -> Any:
    """Of one of the models."""
    name = client.get("/v1/models").json()["data"][0]["id"]
    if embeds:
        answer = client.post("/embedding", json={"model": name, "content": "Once upon a time"})
    else:
        answer = client.post("/v1/completions", json={"model": name, "prompt": "Once upon a time", "max_tokens": 8})
    assert answer.status_code == 200, answer.text
    return answer.json()[0]["embedding"] if embeds else answer.json()["choices"][0]["text"]
