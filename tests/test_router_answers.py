"""What a router makes of its models' answers, without a model."""

import asyncio
from collections.abc import AsyncIterator, Iterator
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


def sent_on(path: str) -> list[Any]:
    """What a client gets whose model ends while it answers."""
    head = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(200, headers=head, stream=BrokenStream()))
    child = SimpleNamespace(http=httpx2.AsyncClient(transport=transport, base_url="http://model"))

    @contextmanager
    def used(_member: Any) -> Iterator[Any]:
        yield child

    service: Any = SimpleNamespace(
        fleet=SimpleNamespace(used=used), settings=ServerSettings.of({"api_prefix": "/llm"}, "duo")
    )
    member: Any = SimpleNamespace(is_there=True)
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": [], "duo.body": b"",
        "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        answer = await answer_of(service, member, Request(scope), ExitStack(), loads=False)
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
