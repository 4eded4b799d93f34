"""JSON of answers: large ones are encoded in slices, in a thread, so that the event loop goes on."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from served import GREEDY, PROMPT, TALE, Server

from duo.server import json_text, respond, sse
from duo.server.formats.chat import ChatShape
from duo.server.respond import Json
from duo.server.routes import tokens

ROW = {"id": 1, "token": "\N{SNOWMAN}\n", "bytes": [1, 2], "logprob": -0.5, "top_logprobs": [{"id": 2}, {"id": 3}]}


class CountingEncoder:
    """Python's, and the sizes of what it encoded at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._encoder = json_text.ENCODER

    def encode(self, data: Any) -> str:
        self.sizes.append(json_text.size_of(data))
        return self._encoder.encode(data)


@pytest.mark.parametrize(
    "data",
    [
        {"tokens": [*range(5000)]},
        {"choices": [{"logprobs": {"content": [ROW] * 300, "none": None}}] * 3, "usage": {}},
        [[None, {"a": 1.5}], *[("x", [ROW] * 50)] * 40],
        {"map": {str(i): i for i in range(2000)}, 'q"': []},
    ],
)
def test_large_values_are_encoded_in_slices(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "N_AT_ONCE", 100)
    monkeypatch.setattr(json_text, "ENCODER", counting := CountingEncoder())
    right = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    assert json_text.dumped(data) == right
    assert max(counting.sizes) <= 100 < json_text.size_of(data)


def test_what_is_no_unicode_becomes_a_question_mark() -> None:
    assert json_text.dumped({"a": "\ud800"}) == b'{"a":"?"}'


def test_a_value_that_is_nested_deeply() -> None:
    """As Python's encoder bears it: a schema that the client has sent."""
    data: Any = 1
    for _ in range(400):
        data = {"a": [data]}
    assert json.loads(json_text.dumped(data)) == data


def test_large_answers_are_made_and_encoded_in_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(call: Any) -> Any:
        return lambda *args: (threads.append(threading.current_thread().name), call(*args))[1]

    monkeypatch.setattr(Json, "render", noted(Json.render))
    monkeypatch.setattr(ChatShape, "end", noted(ChatShape.end))
    for module in (respond, sse):
        monkeypatch.setattr(module, "N_AT_ONCE", 40)
    server.post("/tokenize", {"content": PROMPT})
    body = {"messages": TALE, **GREEDY, "logprobs": True, "top_logprobs": 5, "verbose": True}
    assert server.post("/v1/chat/completions", body).status_code == 200
    assert server.events("/v1/chat/completions", body)[-1][1] == "[DONE]"
    assert len(threads) == 3 and all(name.startswith(("duo-serve", "asyncio_")) for name in threads), threads


def test_pieces_of_too_many_tokens_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "N_PIECES", 3)
    body = {"content": "one two three four five six", "with_pieces": True}
    refused = server.post("/tokenize", body)
    assert refused.status_code == 400 and "with_pieces takes at most 3" in refused.json()["error"]["message"]
    assert len(server.post("/tokenize", {**body, "with_pieces": False}).json()["tokens"]) > 3
