"""What the core does between two texts, in the threads of its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from duo import _core
from duo.errors import BadValueError, CancelledError, error_class
from duo.generation.pictures import pictures_of
from duo.generation.result import TokenLogprobs
from duo.generation.session import SLICE_US, EngineSession


@contextmanager
def turn(session: EngineSession) -> Iterator[None]:
    """Waits until no text is written. Raises BusyError: this thread reads one."""
    own = session.turns.new(alone=True)
    try:
        session.wait_for_turn(own)
        yield
    finally:
        session.turns.end(own)


def finish(session: EngineSession, errand: _core.Errand, prompt: Sequence[int] = (), slot: int = -1) -> _core.Errand:
    """Runs it to its end; call it in a turn. slot: in the target's cache; -1: where the prompt is, or the last text.

    Raises BadValueError (what is restored does not fit), CancelledError, DuoError.
    """
    _wait(session, session.engine.begin_errand(errand, list(prompt), slot))
    return errand


def read_ahead(session: EngineSession, tokens: Sequence[int]) -> None:
    """Evaluates all of a prompt but its last token. Call it in a turn. Raises DuoError."""
    plan = _core.Plan()
    plan.mode = "plain"
    text = session.engine.begin(
        prompt=list(tokens),
        n_predict=0,
        sampling=_core.Sampling(),
        plan=plan,
        stop=[],
        n_logprobs=-1,
        pictures=pictures_of(tokens),
    )
    _wait(session, text)


def _wait(session: EngineSession, text: _core.Text, stopped: Callable[[], bool] = lambda: False) -> None:
    try:
        while (chunk := session.next_chunk(text, SLICE_US)) is None or not chunk.finish:
            if stopped():
                raise CancelledError("the errand was stopped")
            if session.closed:
                raise CancelledError("this Duo was closed meanwhile")
    except BaseException:
        session.cancel(text)  # returns when the core has let go of the errand
        raise
    stats = text.stats()
    if chunk.finish == "error":
        raise error_class(stats["error_code"])(stats["error"])


def score(
    session: EngineSession, tokens: Sequence[int], n_top: int, lora_scales: Sequence[float] = ()
) -> list[TokenLogprobs]:
    """The target's log-probabilities (nats) of each token but the first, and of its n_top best alternatives there.

    Raises BadValueError (the target is on another machine), BusyError, CancelledError, DuoError.
    """
    check_scores(session, tokens)
    with turn(session):
        return scored(session, tokens, n_top, lora_scales=lora_scales)


def check_scores(session: EngineSession, tokens: Sequence[int]) -> None:
    """Raises BadValueError: the target is on another machine, and does not score there; or there are pictures."""
    if pictures_of(tokens) is not None:
        raise BadValueError("tokens of pictures have no log-probabilities; leave out echo or logprobs")
    if session.engine.target is None:
        raise BadValueError("log-probabilities of a prompt need the target in this process; leave out echo or logprobs")


def scored(
    session: EngineSession,
    tokens: Sequence[int],
    n_top: int,
    *,
    slot: int = -1,
    lora_scales: Sequence[float] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> list[TokenLogprobs]:
    """The same; call it in a turn. slot: in the target's cache; -1: any. lora_scales: empty: the engine's. stopped:
    asked twenty times a second.

    Raises CancelledError (it was stopped, or the session is closed), DuoError.
    """
    errand = _core.Errand("score", n_top=n_top)
    _wait(session, session.engine.begin_errand(errand, list(tokens), slot, list(lora_scales)), stopped)
    logprobs, top = errand.logprobs, errand.top
    return [
        TokenLogprobs(token, logprobs[i], tuple(top[i * n_top : (i + 1) * n_top])) for i, token in enumerate(tokens[1:])
    ]
