"""A text for an event loop. Threads of the loop's pool read it, one chunk at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from duo.text.job import prepare
from duo.text.prompt_cache import open_cache
from duo.text.result import Chunk, Result
from duo.text.session import Session
from duo.text.stream import Stream, begin

if TYPE_CHECKING:
    from duo.text.job import Prompt


# Seconds that a task waits for its own earlier stream to close before it raises Busy.
ABANDONED_S = 5.0


async def _start_async(session: Session, prompt: Prompt, given: dict[str, Any], function: str) -> Stream:
    session.check_outside()
    job = await asyncio.to_thread(prepare, session.local_model, session.engine.target, prompt, given, function)
    task = asyncio.current_task()
    # The wait for the turn is in the loop and not in a pool thread. Waiting tasks would fill the pool, and the running
    # text needs one of its threads to end.
    thread = threading.get_ident()
    turn = session.turns.ask()
    since = time.monotonic()
    try:
        while not turn.granted:
            session.turns.check(turn, lambda owner: owner == (thread, None), "task")
            # If this task left a stream by `break`, the loop closes it a moment later. One that is in use stays open.
            if time.monotonic() - since > ABANDONED_S:
                session.turns.check(turn, lambda owner: owner[1] is task, "task")
            await asyncio.sleep(0.005)
        cache = None
        if job.options["prompt_cache"] is not None:
            cache = await _in_thread(threading.Event(), partial(open_cache, session, job))
    except BaseException:
        session.turns.end(turn)
        raise
    return begin(session, job, task, turn, cache)


async def _in_thread(stop: threading.Event, call: Callable[[], Any]) -> Any:
    """Runs a blocking call in a thread. A cancelled task waits for its end, so that nothing is left running."""
    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


async def _close(s: Stream) -> None:
    """Closes a text without blocking the loop, because a pass may take a while to stop."""
    if s.is_open:
        await asyncio.shield(asyncio.to_thread(s.close))


async def chunks_async(session: Session, prompt: Prompt, given: dict[str, Any]) -> AsyncIterator[Chunk]:
    """The chunks of one text, for an event loop. Raises as `start`."""
    stop = threading.Event()

    def pull() -> Chunk | None:
        try:
            while not stop.is_set():
                chunk = s.poll()
                if chunk is not None:
                    return chunk
        except StopIteration:
            pass
        return None

    s = await _start_async(session, prompt, given, "astream")
    try:
        while (chunk := await _in_thread(stop, pull)) is not None:
            yield chunk
    finally:
        await _close(s)


async def result_async(session: Session, prompt: Prompt, given: dict[str, Any]) -> Result:
    """The whole text, for an event loop. Raises as `start`."""
    s = await _start_async(session, prompt, given, "agenerate")
    stop = threading.Event()

    def pull_all() -> None:
        try:
            while not stop.is_set():
                s.poll()
        except StopIteration:
            pass

    try:
        await _in_thread(stop, pull_all)
        return s.result
    finally:
        await _close(s)
