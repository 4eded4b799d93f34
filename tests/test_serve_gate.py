"""What the server makes of faults, in this process and without a model."""

import asyncio
import gc
import sys
import threading
import weakref
from typing import Any

import httpx
import pytest
import uvicorn
from conftest import HANG_S
from starlette.requests import Request
from uvicorn.server import ServerState

from duo.errors import MissingPackageError
from duo.server import need_server
from duo.server.errors import ApiError
from duo.server.middleware import App, Gate
from duo.server.protocol import protocol_with
from duo.server.request_body import fields_of, parsed
from duo.server.schemas import Fields
from duo.server.service import Service, Stage
from duo.server.settings import ServerSettings


def failing(fault: Exception) -> App:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise fault

    return app


def answer_of(service: Service, app: App) -> httpx.Response:
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
        assert answer_of(service, failing(fault)).status_code == 500
    service.close()
    answer = answer_of(service, failing(fault))
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

    asyncio.run(Gate(app, service)(scope, receive, None))
    assert "duo.body" not in scope


def test_nobody_keeps_what_a_refused_request_had_read() -> None:
    found: list[weakref.ref[Any]] = []

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        read, error = threading.Event(), ApiError(400, "a mistake")  # the frame holds the error that holds the frame
        found.append(weakref.ref(read))
        raise error

    gc.disable()
    try:
        assert answer_of(Service(ServerSettings.of({}, "demo")), app).status_code == 400
        assert found[0]() is None
    finally:
        gc.enable()


def test_a_connection_that_was_reset_waits_for_no_next_request() -> None:
    class Wire(asyncio.Transport):
        def write(self, data: Any) -> None:
            pass

        def is_closing(self) -> bool:
            return False

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def talk() -> None:
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_keep_alive=3600)
        protocol = protocol_with(3600, 3600, lambda: None)(config, ServerState(), {})
        protocol.connection_made(Wire())
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while protocol.timeout_keep_alive_task is None:
            await asyncio.sleep(0)
        protocol.connection_lost(ConnectionResetError())
        assert protocol.timeout_keep_alive_task is None

    asyncio.run(asyncio.wait_for(talk(), HANG_S))


def test_a_mark_of_the_byte_order_is_skipped() -> None:
    assert parsed(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_a_package_that_lacks_what_it_needs_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    need_server("duo serve", "starlette.applications")
    monkeypatch.setitem(sys.modules, "starlette.applications", None)  # its import fails
    words = r"^duo serve needs starlette\.applications, .*pip install 'duo-llama\[server\]'$"
    with pytest.raises(MissingPackageError, match=words):
        need_server("duo serve", "starlette.applications")
