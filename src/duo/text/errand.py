"""What the core does between two texts, in the threads of its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from duo import _core
from duo.errors import BadValue, Cancelled, error_class
from duo.text.result import TokenLogprobs
from duo.text.session import SLICE_US, Session


@contextmanager
def turn(session: Session) -> Iterator[None]:
    """Waits for the running text. Raises Busy: this thread reads it."""
    session.wait_for_turn()
    try:
        yield
    finally:
        session.end_turn()


def finish(session: Session, errand: _core.Errand, prompt: Sequence[int] = ()) -> _core.Errand:
    """Runs it to its end; call it in a turn. Raises BadValue (what is restored does not fit), Cancelled, DuoError."""
    _run(session, lambda: session.engine.begin_errand(errand, list(prompt)))
    return errand


def read_ahead(session: Session, tokens: Sequence[int]) -> None:
    """Evaluates all of a prompt but its last token. Call it in a turn. Raises DuoError."""
    plan = _core.Plan()
    plan.mode = "plain"
    prompt = list(tokens)
    _run(
        session,
        lambda: session.engine.begin(
            prompt=prompt, n_predict=0, sampling=_core.Sampling(), plan=plan, stop=[], n_logprobs=-1
        ),
    )


def _run(session: Session, begin: Callable[[], None]) -> None:
    """Begins, and waits for the end."""
    with session.lock:
        try:
            begin()  # Ctrl-C may come when it has begun and before this returns
            while (chunk := session.next_chunk(SLICE_US)) is None or not chunk.finish:
                if session.closed:
                    raise Cancelled("this Duo was closed meanwhile")
        except BaseException:
            session.cancel()  # returns when the core has let go of the errand
            raise
        stats = session.stats() or {}
        if chunk.finish == "error":
            raise error_class(stats.get("error_code", ""))(stats.get("error", ""))


def score(session: Session, tokens: Sequence[int], n_top: int) -> list[TokenLogprobs]:
    """The target's log-probabilities (nats) of each token but the first, and of its n_top best alternatives there.

    Raises BadValue (the target is on another machine), Busy, Cancelled, DuoError.
    """
    if session.engine.target is None:
        raise BadValue("log-probabilities of a prompt need the target in this process; leave out echo or logprobs")
    with turn(session):
        found = finish(session, _core.Errand("score", n_top=n_top), tokens)
    logprobs, top = found.logprobs, found.top
    return [
        TokenLogprobs(token, logprobs[i], tuple(top[i * n_top : (i + 1) * n_top])) for i, token in enumerate(tokens[1:])
    ]
