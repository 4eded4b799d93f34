"""Pictures in requests to the server, in all dialects; what is no picture is the client's mistake."""

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import rewrite
from served import TEMPLATE, Server, served
from vision_models import png, png_of, projector
from waits import HANG_S

from duo.chat.pictures import url_of
from duo.generation import decoding
from duo.generation.decoding import N_CHILDREN, decoders
from duo.models.demo import demo_pair
from duo.models.header import read_header

DATA = base64.b64encode(png(seed=1)).decode()
URL = url_of(png(seed=1))
OF_INPUT = ("input_tokens", "cache_read_input_tokens")
SHORT: dict[str, Any] = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("media")
    (folder / "a.png").write_bytes(png(seed=1))
    file = projector(folder / "mlp.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    with served({"media_path": str(folder)}, chat_template=TEMPLATE, mmproj=file, n_parallel=2) as s:
        yield s


def chat(server: Server, url: Any, **more: Any) -> Any:
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **SHORT, **more})


def test_all_dialects_show_the_same(server: Server) -> None:
    assert server.get("/props").json()["modalities"]["vision"]
    found = chat(server, URL).json()
    words = found["choices"][0]["message"]["content"]
    n = found["usage"]["prompt_tokens"]
    assert n > 16
    assert chat(server, "file://a.png").json()["choices"][0]["message"]["content"] == words
    parts = [{"type": "text", "text": "What is it?"},
             {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}]  # fmt: skip
    anthropic = server.post("/v1/messages", {"messages": [{"role": "user", "content": parts}], **SHORT}).json()
    assert anthropic["content"][0]["text"] == words and sum(anthropic["usage"][k] for k in OF_INPUT) == n
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": URL}]
    asked = {"input": [{"role": "user", "content": parts}], "temperature": 0, "max_output_tokens": 8}
    responses = server.post("/v1/responses", asked).json()
    assert responses["output"][0]["content"][0]["text"] == words
    native = {"prompt_string": "Look: <__media__> It is", "multimodal_data": [DATA]}
    answer = server.post("/completion", {"prompt": native, "n_predict": 4, "temperature": 0}).json()
    assert answer["tokens_evaluated"] > 16 and "Look:  It is" in answer["prompt"]


CALL = {"name": "look", "arguments": "{}"}


def results() -> list[tuple[str, dict[str, Any]]]:
    """Routes that count tokens, and a conversation in which a tool has returned a picture."""
    user = {"role": "user", "content": "What is it?"}
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    block = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a.png"},
                                                                    {"type": "image", "source": source}]}  # fmt: skip
    called = [{"id": "1", "type": "function", "function": CALL}]
    content = [{"type": "text", "text": "a.png"}, {"type": "image_url", "image_url": {"url": URL}}]
    output = [{"type": "input_text", "text": "a.png"}, {"type": "input_image", "image_url": URL}]
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    return [
        ("/v1/messages/count_tokens", {"messages": [
            user, {"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]}),
        ("/v1/chat/completions/input_tokens", {"messages": [
            user, {"role": "assistant", "content": None, "tool_calls": called},
            {"role": "tool", "tool_call_id": "1", "content": content}]}),
        ("/v1/responses/input_tokens", {"input": [
            user, {"type": "function_call", "call_id": "1", **CALL},
            {"type": "function_call_output", "call_id": "1", "output": output}]}),
    ]  # fmt: skip


def test_a_tool_returns_a_picture(server: Server) -> None:
    """Claude Code's Read and Codex's view_image do."""
    counts = {server.post(path, body).json()["input_tokens"] for path, body in results()}
    assert len(counts) == 1 and counts.pop() > 16


def data(file: bytes) -> str:
    return url_of(file)


@pytest.mark.parametrize(
    "url",
    [
        data(png_of(60_000, 60_000, b"")), data(png()[:60]), data(b"<svg/>"), data(png_of(9, 9, b"\0" * 20_000_000)),
        "data:image/png;base64,***", URL.replace("image/png", "text/html"),
        "http://169.254.169.254/latest", "http://localhost:1/x.png", "file:///etc/passwd",
        "file://../a.png", "gopher://x/y", "", 7,
    ],
)  # fmt: skip
def test_hostile_pictures_are_refused(server: Server, url: Any) -> None:
    answer = chat(server, url)
    assert answer.status_code == 400 and answer.json()["error"]["message"].count("\n") == 0
    assert chat(server, URL).status_code == 200  # others are unharmed


def test_too_many_pictures_are_refused(server: Server) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = {"messages": [{"role": "user", "content": [part] * 10_000}], **SHORT}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code == 400 and "pictures" in answer.json()["error"]["message"]


def test_a_server_without_a_projector_says_so() -> None:
    with served(chat_template=TEMPLATE) as s:
        answer = chat(s, URL)
        assert answer.status_code == 400 and "--mmproj" in answer.json()["error"]["message"]
        assert not s.get("/props").json()["modalities"]["vision"]
        counts = {s.post(path, body).json()["input_tokens"] for path, body in results()}
        assert len(counts) == 1
        (_, (_, told), _) = results()
        assert "a.png\n[a picture that this model cannot see]" in s.post("/apply-template", told).json()["prompt"]


@pytest.mark.parametrize("stream", [False, True])
def test_clients_do_not_learn_where_the_files_are(tmp_path: Path, stream: bool) -> None:
    def spoilt(name: str, data: Any) -> Any:
        return np.full_like(data, np.nan) if name == "mm.2.bias" else data

    good = projector(tmp_path / "good.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    bad = rewrite(good, tmp_path / "bad.gguf", weights=spoilt)
    with served(chat_template=TEMPLATE, mmproj=bad) as s:
        answer = chat(s, URL, stream=stream)
    said = "the projector bad.gguf computes NaN or infinity for a picture; choose another file"
    assert answer.status_code == 500 and answer.json()["error"]["message"] == said


def test_pictures_of_others_hold_up_no_text(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are being decoded."""
    go, waiting = threading.Event(), threading.Semaphore(0)
    decode = decoders.media

    def slow(*args: Any) -> Any:
        waiting.release()
        assert go.wait(HANG_S)
        return decode(*args)

    monkeypatch.setattr(decoders, "media", slow)
    pool = ThreadPoolExecutor(10)
    try:
        shown = [pool.submit(chat, server, URL) for _ in range(10)]
        for _ in range(N_CHILDREN):
            assert waiting.acquire(timeout=HANG_S)
        body = {"prompt": "Once", "n_predict": 2}
        assert server.post("/completion", body).status_code == 200
        assert server.post("/tokenize", {"content": "Once"}).status_code == 200
    finally:
        go.set()
        pool.shutdown()
    assert {s.result().status_code for s in shown} == {200}


def test_a_broken_library_is_no_mistake_of_the_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders.end()
    with monkeypatch.context() as m:
        m.setattr(decoding, "libraries", lambda: ["libnone.so"])
        answer = chat(server, URL)
    assert answer.status_code == 500 and "libnone.so: cannot open" in answer.json()["error"]["message"]
    assert chat(server, URL).status_code == 200
