"""What a router makes of its models' answers, without a model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from served import parsed
from starlette.requests import Request

from duo.server.router.routes import answer_of
from duo.server.settings import ServerSettings


class BrokenStream(httpx2.AsyncByteStream):
    """Of a process that ends while it answers."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"data: {}\n\n"
        raise httpx2.ReadError("gone")


class ModelProcess(httpx2.AsyncBaseTransport):
    """One that reads a request and begins an answer."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        n = sum([len(part) async for part in request.stream])
        assert str(n) == request.headers.get("content-length", "0") and "transfer-encoding" not in request.headers
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=BrokenStream())


def sent_on(path: str, body: list[bytes] | None = None, began: Callable[[], None] = lambda: None) -> list[Any]:
    """What a client gets whose model ends while it answers. body: a list of one, which nobody else holds.
    began: called when the answer begins."""
    transport = ModelProcess()
    child = SimpleNamespace(http=httpx2.AsyncClient(transport=transport, base_url="http://model"))

    @contextmanager
    def used(_member: Any) -> Iterator[Any]:
        yield child

    service: Any = SimpleNamespace(
        fleet=SimpleNamespace(used=used), settings=ServerSettings.of({"api_prefix": "/llm"}, "duo")
    )
    member: Any = SimpleNamespace(is_there=True)
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": [],
        "duo.body": body.pop() if body else b"",
        "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if not sent:
            began()
        sent.append(message)

    async def ask() -> None:
        answer = await answer_of(service, member, Request(scope), ExitStack(), loads=False)
        scope.pop("duo.body")  # as who asks for the answer does
        await answer(scope, None, send)

    asyncio.run(ask())
    return sent


@pytest.mark.parametrize(("path", "name"), [("/llm/v1/messages", "error"), ("/llm/v1/chat/completions", "")])
def test_a_model_that_ends_in_the_middle_of_a_stream(path: str, name: str) -> None:
    sent = sent_on(path)
    events = parsed(b"".join(m.get("body", b"") for m in sent).decode())
    assert [e[0] for e in events] == ["", name]
    error = events[-1][1]["error"]
    assert error["message"] == "the model's process has ended; try again"
    assert events[-1][1].get("type") == (name or None) and ("code" in error) is not bool(name)


def test_a_body_is_held_no_longer_than_it_is_sent() -> None:
    events: list[str] = []

    class Body(bytes):
        def __del__(self) -> None:
            events.append("freed")

    sent_on("/llm/completion", [Body(b"0123456789")], lambda: events.append("answered"))
    assert events == ["freed", "answered"]
