"""What becomes of the models, told to everybody who listens: llama-server's /models/sse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from duo.server.sse import PING, encoded, first_of

if TYPE_CHECKING:
    from duo.server.router.service import Router
    from duo.server.sse import Receive, Send

N_WAITING = 1000  # events that a client has not read; one that lets more wait is disconnected


class Listener:
    """One client. For one event loop."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._ended = False

    def tell(self, event: dict[str, Any]) -> None:
        if self._events.qsize() >= N_WAITING:
            self.stop()
        elif not self._ended:
            self._events.put_nowait(event)

    def stop(self, _why: Exception | None = None) -> None:
        """Nothing more comes. Safe to call twice."""
        if not self._ended:
            self._ended = True
            self._events.put_nowait(None)

    async def next(self) -> dict[str, Any] | None:
        """None: nothing more comes."""
        return await self._events.get()


class ModelEvents:
    """For one event loop. Names and data are llama-server's (tools/server/server-models.cpp): `model_status` when a
    process begins, `status_change` for what becomes of it."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    @property
    def n_listeners(self) -> int:
        """Clients."""
        return len(self._listeners)

    @contextmanager
    def listen(self) -> Iterator[Listener]:
        """Who gets all events from now on."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def begun(self, model: str) -> None:
        """Its process loads."""
        self._tell(model, "model_status", {"status": "loading"})

    def loaded(self, model: str, info: dict[str, Any] | None) -> None:
        """It serves. info: what its process says of it."""
        self._tell(model, "status_change", {"status": "loaded", **({} if info is None else {"info": info})})

    def ended(self, model: str, exit_code: int) -> None:
        """Its process has ended. exit_code: 0 if somebody wanted that; clients take another one for a failure."""
        self._tell(model, "status_change", {"status": "unloaded", "exit_code": exit_code})

    def _tell(self, model: str, event: str, data: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener.tell({"model": model, "event": event, "data": data})


class EventStream(Response):
    """All events from now on, until the client goes or the server ends."""

    media_type = "text/event-stream"

    def __init__(self, router: Router) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._router = router

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        with self._router.fleet.events.listen() as listener:  # whoever has the head of the answer misses nothing
            self._router.writings.add(listener)
            try:
                work = asyncio.create_task(self._send_all(listener, send))
                await first_of(work, receive)
            finally:
                self._router.writings.discard(listener)

    async def _send_all(self, listener: Listener, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pending = asyncio.create_task(listener.next())
        try:
            while True:
                if not (await asyncio.wait([pending], timeout=self._router.settings.ping_s or None))[0]:
                    await self._send(send, PING)
                    continue
                if (event := pending.result()) is None:
                    break
                pending = asyncio.create_task(listener.next())
                await self._send(send, encoded(("", event)))
        finally:
            pending.cancel()
        await self._send(send, b"", more=False)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})
