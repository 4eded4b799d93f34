"""The texts of one request while they are written, one task for each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from duo.generation.result import Chunk
from duo.generation.stream_async import open_async
from duo.server.text import ServedText

if TYPE_CHECKING:
    from duo.server.admission import Ticket
    from duo.server.service import Service

Batch = tuple[ServedText, list[Chunk]]
log = logging.getLogger("duo.server")


class Writing:
    """Give it back with `close`, whatever happens: that frees the slots within a pass."""

    def __init__(self, service: Service, texts: Sequence[ServedText], ticket: Ticket) -> None:
        self.texts = texts
        self._service, self._ticket = service, ticket
        self._came: asyncio.Queue[Batch | BaseException] = asyncio.Queue()
        self._n_running = len(texts)  # texts whose end `next` has not returned yet
        self._n_open = len(texts)
        self._tasks = [asyncio.create_task(self._write(t)) for t in texts]
        service.writings.add(self)

    async def _write(self, text: ServedText) -> None:
        last: Batch | Exception
        try:
            last = (text, await self._run(text))
        except Exception as e:
            last = e
        finally:
            self._service.running.discard(text)
            self._n_open -= 1
            if not self._n_open:  # their slots are free now, even if the client does not read its answer
                self._leave()
            self._record(text)
        self._came.put_nowait(last)  # last: a client that has read the end may send its next request at once

    def _record(self, text: ServedText) -> None:
        """A fault in its figures must not keep the text from its reader."""
        try:
            text.end()
            self._service.metrics.ended(text)
        except Exception:
            log.exception("the figures of a text could not be recorded")

    async def _run(self, text: ServedText) -> list[Chunk]:
        """The last chunks; those before are in `_came`."""
        service = self._service
        if text.scores is not None:
            await text.scores.fill(service.duo.session, text.job)
        last = [Chunk("", finish_reason="length")]  # for a text that takes too long

        def came(chunks: list[Chunk]) -> None:
            nonlocal last
            if not chunks:
                return
            if chunks[0].token is not None:
                text.arrived()
            if text.indent is not None and (cut := text.indent.cut(chunks)) is not None:
                last = cut
                stream.stop()
                return
            if chunks[-1].finish_reason is not None:
                last = chunks
                return
            self._came.put_nowait((text, chunks))
            if text.too_slow:
                stream.stop()

        stream = await open_async(service.duo.session, text.job, came)
        try:
            text.begun_at = time.monotonic()
            text.stream = stream
            service.running.add(text)
            service.metrics.begun(text)
            await stream.wait()
            return last
        finally:
            await stream.close()

    async def next(self) -> Batch | None:
        """What has come; None: all have ended. Raises what went wrong with any of them."""
        while self._n_running:
            outcome = await self._came.get()
            if isinstance(outcome, BaseException):
                raise outcome
            _, batch = outcome
            if batch[-1].finish_reason is not None:
                self._n_running -= 1
            return outcome
        return None

    def stop(self, why: Exception) -> None:
        """Ends what still runs; whoever waits for `next` gets the exception."""
        for task in self._tasks:
            task.cancel()
        self._came.put_nowait(why)

    async def close(self) -> None:
        """Ends what still runs. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.gather(*self._tasks, return_exceptions=True))
        self._service.writings.discard(self)
        self._leave()

    def _leave(self) -> None:
        written = [t.last_at - t.begun_at for t in self.texts if t.last_at]
        self._ticket.leave(sum(written) / len(written) if written else None)
