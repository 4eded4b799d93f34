"""What the server makes of faults, in this process and without a model."""

import asyncio
import sys
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from duo.errors import MissingPackageError
from duo.server import need_server
from duo.server.middleware import Gate
from duo.server.request_body import fields_of, parsed
from duo.server.schemas import Fields
from duo.server.service import Service, Stage
from duo.server.settings import ServerSettings


def answer_of(service: Service, fault: Exception) -> httpx.Response:
    """To a request that raises the fault."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise fault

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Gate(app, service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/tokenize")

    return asyncio.run(ask())


def test_a_fault_is_logged_and_told_until_the_models_are_freed(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(ServerSettings.of({}, "demo"))
    fault = RuntimeError("a mistake in a route")
    for stage in (Stage.READY, Stage.DRAINING):
        service.stage = stage
        assert answer_of(service, fault).status_code == 500
    service.close()
    answer = answer_of(service, fault)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert caplog.text.count("RuntimeError: a mistake in a route") == 3


@pytest.mark.parametrize("read", [True, False])
def test_nobody_keeps_the_body_of_a_request(read: bool) -> None:
    """uvicorn keeps its scope as long as the connection."""
    service = Service(ServerSettings.of({}, "demo"))
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/tokenize", "headers": [], "server": ("localhost", 80),
    }  # fmt: skip

    async def app(inner: Any, _receive: Any, _send: Any) -> None:
        assert inner["duo.body"] == b"{}"
        if read:
            await fields_of(service, Request(inner), Fields)
            assert "duo.body" not in inner  # while the answer is sent

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    asyncio.run(Gate(app, service)(scope, receive, None))  # type: ignore[arg-type]
    assert "duo.body" not in scope


def test_a_mark_of_the_byte_order_is_skipped() -> None:
    assert parsed(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_a_package_that_lacks_what_it_needs_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    need_server("duo serve", "starlette.applications")
    monkeypatch.setitem(sys.modules, "starlette.applications", None)  # its import fails
    words = r"^duo serve needs starlette\.applications, .*pip install 'duo-llama\[server\]'$"
    with pytest.raises(MissingPackageError, match=words):
        need_server("duo serve", "starlette.applications")
