"""docs/guides/: every option that they name, the program of the Python service, and what editors send."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import runpy
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import httpx
import pytest
import yaml
from conftest import HANG_S
from gguf_files import U32, rewrite
from parsed_line import lines_of, parse

from duo import Chunk, Duo
from duo.cli.main import program
from duo.models.demo import demo_pair

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
PAGES = {p.stem: p.read_text("utf-8") for p in sorted(GUIDES.glob("*.md"))}
LINES = [line for page in PAGES.values() for line in lines_of(page)]
ADDRESS = "http://127.0.0.1:8080"


@pytest.mark.parametrize("line", LINES)
def test_command_lines_are_understood(line: str) -> None:
    parse(line)


def _spellings(command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from _spellings(command.commands[name])
    for p in command.params:
        yield from (s for option in (*p.opts, *p.secondary_opts) for s in option.split("/"))


def test_options_in_the_text_exist() -> None:
    known = {s for name in program.list_commands(click.Context(program)) for s in _spellings(_command(name))}
    # Of uvicorn, systemd-run, docker and numactl, and one that duo does not have.
    elsewhere = {
        "--app-dir",
        "--timeout-graceful-shutdown",
        "--user",
        "--scope",
        "--memory",
        "--interleave=all",
        "--expert-cache",
    }
    for name, page in PAGES.items():
        told = {word for code in re.findall(r"`([^`\n]+)`", page) for word in code.split() if word.startswith("-")}
        assert told - {"-"} <= known | elsewhere, name


def _command(name: str) -> click.Command:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    return command


# ---- the Python service


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program of the page, as a module."""
    for code, name in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", PAGES["python_service"], re.S):
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import service  # type: ignore[import-not-found]

    yield service
    del sys.modules["service"]


@pytest.mark.full
def test_the_service_writes(service: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(tmp_path / "try_service.py"))
    lines = capsys.readouterr().out.splitlines()
    one, other = ast.literal_eval(lines[0])
    assert one and other and one != other
    assert any(line.startswith("{'error': 'bad_value', ") for line in lines)


@pytest.mark.full
def test_the_service_limits_time_and_requests(service: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    with TestClient(service.app) as client:
        wish = {"prompt": "Once upon a time", "max_tokens": 8}
        with monkeypatch.context() as m:
            m.setattr(service, "SECONDS", 0.0)
            assert client.post("/write", json=wish).status_code == 504
        with monkeypatch.context() as m:
            m.setattr(service, "room", asyncio.Semaphore(0))
            refused = [client.post(path, json=wish) for path in ("/write", "/stream")]
            assert [(r.status_code, r.headers["Retry-After"]) for r in refused] == [(429, "5")] * 2
        assert len(client.post("/write", json={**wish, "n": 4}).json()) == 4
        assert client.post("/write", json={**wish, "prompt": "a b " * 600}).json()["error"] == "context_full"
        assert client.post("/stream", json={**wish, "prompt": ""}).text.startswith("\n[bad_value: ")


@pytest.mark.full
def test_a_client_that_leaves_a_stream_cancels_it(service: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    async def astream(_duo: Duo, _prompt: str, **_: Any) -> AsyncIterator[Chunk]:
        yield Chunk("once")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    monkeypatch.setattr(Duo, "astream", astream)
    with _running(service.app) as url, httpx.stream("POST", f"{url}/stream", json={"prompt": "a"}, timeout=HANG_S) as r:
        assert next(r.iter_text()) == "once" and not cancelled.is_set()
        r.close()
        assert cancelled.wait(HANG_S)


@contextmanager
def _running(app: Any) -> Iterator[str]:
    """uvicorn in a thread, on a port that the system chooses."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, *args: Any, **kwargs: Any) -> None:
            await super().startup(*args, **kwargs)
            begun.set()

    begun = threading.Event()
    server = Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert begun.wait(HANG_S)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(HANG_S)


# ---- editors


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a server whose model has tokens for the middle of code."""
    from fastapi.testclient import TestClient

    from duo.server import create_app

    put = {f"tokenizer.ggml.fim_{kind}_token_id": (U32, 301 + i) for i, kind in enumerate(("pre", "suf", "mid"))}
    target, draft = demo_pair()
    path = rewrite(target, tmp_path_factory.mktemp("fim") / "fim.gguf", put=put)
    with Duo(path, draft, n_parallel=2) as d:
        yield TestClient(create_app(d, alias="demo"), base_url=ADDRESS)


def _settings(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGES["editor"], re.S)
    return str(code)


@pytest.mark.full
def test_what_continue_sends(client: Any) -> None:
    chat, completion = yaml.safe_load(_settings("yaml"))["models"]
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
    body = {"model": chat["model"], "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8,
            "stream": True, "tools": [tool]}  # fmt: skip
    answer = client.post(chat["apiBase"] + "/chat/completions", json=body, headers={"Authorization": "Bearer none"})
    assert answer.status_code == 200 and answer.text.rstrip().endswith("data: [DONE]")
    # core/llm/llms/LlamaCpp.ts
    prompt = "<|fim_prefix|>def f(x):\n<|fim_suffix|>\n<|fim_middle|>"
    body = {"prompt": prompt, "stream": True, "n_predict": 8, "stop": ["<|endoftext|>"], "temperature": 0.01}
    url = httpx.URL(completion["apiBase"]).join("completion")
    assert '"content"' in client.post(str(url), json=body, headers={"Authorization": "Bearer undefined"}).text


@pytest.mark.full
def test_what_zed_sends_for_a_completion(client: Any) -> None:
    zed = json.loads(_settings("json"))["edit_predictions"]["open_ai_compatible_api"]
    body = {"model": zed["model"], "prompt": "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "stop": ["<|endoftext|>"],
            "max_tokens": zed["max_output_tokens"]}  # fmt: skip
    (choice,) = client.post(zed["api_url"], json=body).json()["choices"]
    assert choice["finish_reason"] in ("stop", "length")


@pytest.mark.full
def test_what_llama_vim_sends(client: Any) -> None:
    body = {"id_slot": 0, "input_prefix": "def f(x):\n", "input_suffix": "\n", "input_extra": [], "prompt": "    ret",
            "n_predict": 8, "top_k": 40, "top_p": 0.9, "stream": False, "n_indent": 4, "t_max_prompt_ms": 500,
            "response_fields": ["content", "timings/prompt_n"]}  # fmt: skip
    assert client.post("/infill", json=body).json().keys() == {"content", "timings/prompt_n"}
    sampled = client.post("/infill", json={**body, "samplers": ["top_k", "top_p", "infill"]})
    assert sampled.json().keys() == {"content", "timings/prompt_n"}
