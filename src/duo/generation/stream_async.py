"""A text for an event loop. One thread reads the texts of all loops (duo.generation.pump)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from duo.generation.begin import begin, checked
from duo.generation.job import Job
from duo.generation.prompt_cache import open_cache
from duo.generation.result import Chunk, Result
from duo.generation.session import EngineSession
from duo.generation.stream import Stream
from duo.generation.turns import Turn

if TYPE_CHECKING:
    from duo.generation.job import Prompt


# Seconds that a task waits for its own earlier stream to close before it raises BusyError.
ABANDONED_S = 5.0
# Seconds between two checks of who reads the texts that a task waits for, if it or its thread reads one of them.
LOOK_S = 0.25


class AsyncStream:
    """A running text whose chunks come to an event loop. Close it, whatever happens.

    came: called in the loop with the chunks that have come, and once with none when there are no more. It must not
    raise.
    """

    def __init__(self, session: EngineSession, stream: Stream, came: Callable[[list[Chunk]], None]) -> None:
        self.stream = stream
        self._pump = session.pump
        self._loop = asyncio.get_running_loop()
        self._came = came
        self._stopped = asyncio.Event()
        self._ended = False  # the pump has read its end
        self._error: BaseException | None = None
        self._pump.add(stream, self._sink)

    def _sink(self, chunks: list[Chunk], error: BaseException | None, ended: bool) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._take, chunks, error, ended)

    def _take(self, chunks: list[Chunk], error: BaseException | None, ended: bool) -> None:
        if self._stopped.is_set():
            return
        try:
            if chunks:
                self._came(chunks)
        finally:
            if ended:
                self._ended, self._error = True, error
                self.stop()

    def stop(self) -> None:
        """Nothing more comes. `close` ends the text."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._came([])

    async def wait(self) -> None:
        """Returns when nothing more comes. Raises as `Stream`."""
        await self._stopped.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Ends the text without blocking the loop, because a pass may take a while to stop. Safe to call twice.

        The pump may be ending it just now. This waits for that, too: the task may begin its next text at once.
        """
        self._pump.remove(self.stream)
        self.stop()
        if not self._ended:
            self._ended = True
            await asyncio.shield(asyncio.to_thread(self.stream.close))


async def open_async(session: EngineSession, job: Job, came: Callable[[list[Chunk]], None]) -> AsyncStream:
    """Waits for its turn and begins the text. came: as of `AsyncStream`. Raises as `open_stream`."""
    session.home.require()
    session.check_outside()
    task = asyncio.current_task()
    turn = await turn_async(session, task)
    try:
        cache = None
        if job.options["prompt_cache"] is not None:
            cache = await _in_thread(partial(open_cache, session, job))
    except BaseException:
        session.turns.end(turn)
        raise
    return AsyncStream(session, begin(session, job, task, turn, cache), came)


async def turn_async(session: EngineSession, task: asyncio.Task[Any] | None, *, alone: bool = False) -> Turn:
    """Waits for a turn; the caller ends it. alone: while nothing else is written. Raises BusyError and
    CancelledError."""
    # The wait is in the loop and not in a pool thread. Waiting tasks would fill the pool.
    loop, came = asyncio.get_running_loop(), asyncio.Event()

    def granted() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(came.set)

    thread, since = threading.get_ident(), time.monotonic()
    turn = session.turns.new(alone=alone)
    try:
        session.turns.ask(turn, on_granted=granted)
        # What this task, or this thread outside tasks, begins from now on queues behind. So one look tells whether it
        # reads any of the texts before; thousands may wait, and only who does looks again.
        if not any(owner == (thread, None) or owner[1] is task for owner in session.turns.owners):
            await came.wait()
        while not turn.granted:
            session.turns.check(turn, lambda owner: owner == (thread, None), "task")
            # If this task left a stream by `break`, the loop closes it a moment later. One that is in use stays open.
            if time.monotonic() - since > ABANDONED_S:
                session.turns.check(turn, lambda owner: owner[1] is task, "task")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(came.wait(), LOOK_S)
    except BaseException:
        session.turns.end(turn)
        raise
    return turn


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Runs a blocking call in a thread. A cancelled task waits for its end, so that nothing is left running."""
    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


async def _prepared(session: EngineSession, prompt: Prompt, options: dict[str, Any], function: str) -> Job:
    session.home.require()
    session.check_outside()
    return await asyncio.to_thread(checked, session, prompt, options, function)


async def chunks_async(session: EngineSession, prompt: Prompt, options: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
    """The chunks of one text, for an event loop. Raises as `start`."""
    came: asyncio.Queue[list[Chunk]] = asyncio.Queue()
    text = await open_async(session, await _prepared(session, prompt, options, "astream"), came.put_nowait)
    try:
        while batch := await came.get():
            for chunk in batch:
                yield chunk
        await text.wait()
    finally:
        await text.close()


async def result_async(session: EngineSession, prompt: Prompt, options: dict[str, Any]) -> Result:
    """The whole text, for an event loop. Raises as `start`."""
    job = await _prepared(session, prompt, options, "agenerate")
    text = await open_async(session, job, lambda _chunks: None)
    try:
        await text.wait()
        return text.stream.result
    finally:
        await text.close()
