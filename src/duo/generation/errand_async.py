"""Errands of an event loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

from duo.errors import CancelledError
from duo.generation.errand import check_scores, scored
from duo.generation.result import TokenLogprobs
from duo.generation.session import EngineSession
from duo.generation.stream_async import turn_async
from duo.generation.turns import Turn


async def score_async(
    session: EngineSession, tokens: Sequence[int], n_top: int, slot: int = -1, lora_scales: Sequence[float] = ()
) -> list[TokenLogprobs]:
    """As `duo.generation.errand.score`, in a thread. slot: in the target's cache; -1: any. A cancelled task ends the
    work.

    Raises BadValueError (the target is on another machine), BusyError, CancelledError, DuoError.
    """
    check_scores(session, tokens)
    session.check_outside()
    turn = await turn_async(session, asyncio.current_task(), alone=True)
    stopped = threading.Event()
    score = partial(scored, session, tokens, n_top, slot=slot, lora_scales=lora_scales, stopped=stopped.is_set)
    work = asyncio.get_running_loop().run_in_executor(None, _score, session, turn, score, stopped)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stopped.set()
        work.add_done_callback(lambda w: w.cancelled() or w.exception())  # nobody else reads its error
        await asyncio.wait([work])
        raise


def _score(
    session: EngineSession, turn: Turn, score: Callable[[], list[TokenLogprobs]], stopped: threading.Event
) -> list[TokenLogprobs]:
    # The thread ends the turn: whoever waits for the work may be gone before it has stopped.
    try:
        return score()
    except CancelledError:
        if stopped.is_set():
            return []  # nobody reads it
        raise
    finally:
        session.turns.end(turn)
