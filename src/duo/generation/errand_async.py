"""Errands of an event loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from duo.errors import CancelledError
from duo.generation.errand import check_scores, scored
from duo.generation.result import TokenLogprobs
from duo.generation.session import EngineSession
from duo.generation.stream_async import turn_async
from duo.generation.turns import Turn


async def score_async(session: EngineSession, tokens: Sequence[int], n_top: int, slot: int = -1) -> list[TokenLogprobs]:
    """As `duo.generation.errand.score`, in a thread. slot: in the target's cache; -1: any. A cancelled task ends the
    work.

    Raises BadValueError (the target is on another machine), BusyError, CancelledError, DuoError.
    """
    check_scores(session, tokens)
    session.check_outside()
    turn = await turn_async(session, asyncio.current_task(), alone=True)
    stopped = threading.Event()
    work = asyncio.get_running_loop().run_in_executor(None, _score, session, turn, tokens, n_top, slot, stopped)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stopped.set()
        work.add_done_callback(lambda w: w.cancelled() or w.exception())  # nobody else reads its error
        await asyncio.wait([work])
        raise


def _score(
    session: EngineSession, turn: Turn, tokens: Sequence[int], n_top: int, slot: int, stopped: threading.Event
) -> list[TokenLogprobs]:
    # The thread ends the turn: whoever waits for the work may be gone before it has stopped.
    try:
        return scored(session, tokens, n_top, slot=slot, stopped=stopped.is_set)
    except CancelledError:
        if stopped.is_set():
            return []  # nobody reads it
        raise
    finally:
        session.turns.end(turn)
