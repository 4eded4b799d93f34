"""Texts for many questions, several at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from duo.generation.result import Result
    from duo.generation.stream import Stream
    from duo.generation.turns import Turn, Turns

Q = TypeVar("Q")
A = TypeVar("A")


def as_they_end(
    write: Callable[[Q], A], questions: Iterable[Q], n_at_once: int, stop: Callable[[], object] | None = None
) -> Generator[tuple[int, A], None, None]:
    """(index of the question, what `write` returned) for each question, in the order in which the texts end.

    Questions are taken only when there is a slot for them. An error of a text is raised here, after those that run
    have ended. stop: ends them if the caller wants no more (Ctrl-C, or it closes the generator).
    """
    left = enumerate(questions)
    pool = ThreadPoolExecutor(n_at_once, "duo-many")
    running: dict[Future[A], int] = {}
    try:
        with pool:  # at the end of this block it waits for those that run
            try:
                while True:
                    while len(running) < n_at_once and (following := next(left, None)) is not None:
                        running[pool.submit(write, following[1])] = following[0]
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(done), done.result()
            except BaseException as e:
                for future in running:
                    future.cancel()
                if stop is not None and not isinstance(e, Exception):
                    _ended_by(stop)
                raise
    except BaseException as e:
        if stop is not None and not isinstance(e, Exception):  # Ctrl-C may have come while it waited
            _ended_by(stop)
            pool.shutdown()
        raise


def _ended_by(stop: Callable[[], object]) -> None:
    """Ctrl-C once more does not leave texts that nobody stops."""
    try:
        stop()
    except BaseException:
        stop()
        raise


class OpenStreams:
    """Streams that threads write and read. Another thread closes them all."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: set[Turn] = set()
        self._open: set[Stream] = set()
        self._closed = False

    def read(self, begin: Callable[[Turn], Stream]) -> Result:
        """The whole text, or what there is of it when it is closed. begin: waits for the turn and begins the text.
        Raises as `begin` and `Stream`, and CancelledError: it was closed before it began."""
        turn = self._turns.new()
        self._waiting.add(turn)
        try:
            if self._closed:
                self._turns.call_off(turn)
            stream = begin(turn)
        finally:
            self._waiting.discard(turn)
        with stream:
            self._open.add(stream)
            try:
                if self._closed:  # it began meanwhile
                    stream.close()
                for _ in stream:
                    pass
                return stream.result
            finally:
                self._open.discard(stream)

    def close(self) -> None:
        """Ends what is open, and what opens later."""
        self._closed = True
        for turn in [*self._waiting]:
            self._turns.call_off(turn)
        for stream in [*self._open]:
            stream.close()
