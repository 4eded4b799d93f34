"""A stream of events: `data: {json}` and an empty line, as llama-server and OpenAI send them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from duo.server.json_text import N_AT_ONCE, dumped
from duo.server.progress import LOOK_S

if TYPE_CHECKING:
    from duo.server.errors import ApiError
    from duo.server.formats.shape import AnswerFormat, Event
    from duo.server.progress import Progress, PromptProgress
    from duo.server.response_stream import Batch, Writing
    from duo.server.text import ServedText, TakenChunk

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DONE = b"data: [DONE]\n\n"
PING = b":\n\n"


def encoded(event: Event) -> bytes:
    name, data = event
    return (b"event: " + name.encode() + b"\n" if name else b"") + b"data: " + dumped(data) + b"\n\n"


async def until_gone(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def forget(task: asyncio.Task[Any]) -> None:
    """Nobody wants its result any more, or its error."""
    task.cancel()
    task.add_done_callback(lambda t: t.cancelled() or t.exception())


async def first_of(work: asyncio.Task[Any], receive: Receive) -> bool:
    """Waits for the work, or until the client has gone: then the work is cancelled, and this is False."""
    gone = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait([work])


class Events(Response):
    """Sends a writing as it comes, and ends it when the client goes. pending: what was awaited before the headers."""

    media_type = "text/event-stream"

    def __init__(
        self,
        shape: AnswerFormat,
        writing: Writing,
        pending: asyncio.Task[Batch | None],
        *,
        ping_s: float,
        error_of: Callable[[BaseException], ApiError],
        progress: Progress | None = None,
    ) -> None:
        """error_of: a failure as the client is told. progress: of the prompts, which the client wants to know."""
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._shape, self._writing, self._pending = shape, writing, pending
        self._ping_s, self._error_of, self._progress = ping_s or inf, error_of, progress
        self._quiet_s = 0.0  # since something was sent

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._send_all(send))
        try:
            await first_of(work, receive)
            if work.done() and not work.cancelled():
                with suppress(OSError):  # the client has gone
                    work.result()
        finally:
            forget(self._pending)
            await self._writing.close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._send_texts(send)
        except (asyncio.CancelledError, OSError):
            raise
        except Exception as e:
            await self._send(send, encoded(self._shape.failed(self._error_of(e))))
        await self._send(send, b"", more=False)

    async def _send_texts(self, send: Send) -> None:
        while (batch := await self._next(send)) is not None:
            text, chunks = batch
            body = b""
            for chunk in chunks:
                taken_chunk = text.take(chunk)
                tells_all = taken_chunk.is_first or chunk.finish_reason is not None  # of the prompt, or of the text
                if tells_all and text.n_values > N_AT_ONCE:
                    body += await asyncio.to_thread(self._body, text, taken_chunk)
                else:
                    body += self._body(text, taken_chunk)
            if body:
                await self._send(send, body)
        await self._send(send, b"".join(map(encoded, self._shape.last())) + DONE * self._shape.done)

    def _body(self, text: ServedText, taken_chunk: TakenChunk) -> bytes:
        figures = self._progress.end(text) if self._progress is not None and taken_chunk.is_first else ()
        return self._progress_bytes(text, figures) + b"".join(map(encoded, self._shape.events(text, taken_chunk)))

    def _progress_bytes(self, text: ServedText, figures: Sequence[PromptProgress]) -> bytes:
        return b"".join(encoded(e) for one in figures for e in self._shape.progress(text, one))

    async def _next(self, send: Send) -> Batch | None:
        """What comes next; a comment goes out while nothing does."""
        while not (await asyncio.wait([self._pending], timeout=self._look_s))[0]:
            self._quiet_s += self._look_s or 0.0
            news = b""
            if self._progress is not None:
                news = b"".join(self._progress_bytes(t, self._progress.news(t)) for t in self._shape.texts)
            if news or self._quiet_s >= self._ping_s:
                await self._send(send, news or PING)
        batch = self._pending.result()
        if batch is not None:
            self._pending = asyncio.create_task(self._writing.next())
        return batch

    @property
    def _look_s(self) -> float | None:
        """None: forever."""
        reads = self._progress is not None and not all(t.chunks or t.finish for t in self._shape.texts)
        wait_s = min(self._ping_s - self._quiet_s, LOOK_S if reads else inf)
        return wait_s if wait_s < inf else None

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        self._quiet_s = 0.0
        await send({"type": "http.response.body", "body": body, "more_body": more})
