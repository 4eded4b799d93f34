"""The events of the models as an answer (/models/sse)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from duo.server.sse import PING, encoded, first_of

if TYPE_CHECKING:
    from duo.server.router.model_events import EventListener
    from duo.server.router.service import Router
    from duo.server.sse import Receive, Send


class EventStream(Response):
    """All events from now on, until the client goes or the server ends."""

    media_type = "text/event-stream"

    def __init__(self, router: Router) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._router = router

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        with self._router.fleet.events.listen() as listener:  # whoever has the head of the answer misses nothing
            self._router.writings.add(listener)
            try:
                work = asyncio.create_task(self._send_all(listener, send))
                if await first_of(work, receive):
                    with suppress(OSError):  # the client has gone
                        work.result()
            finally:
                self._router.writings.discard(listener)

    async def _send_all(self, listener: EventListener, send: Send) -> None:
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
