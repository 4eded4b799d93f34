"""Texts for many questions, several at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from duo.generation.result import Result
    from duo.generation.stream import Stream

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
    with ThreadPoolExecutor(n_at_once, "duo-many") as pool:
        running: dict[Future[A], int] = {}
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
                stop()
            raise


class OpenStreams:
    """Streams that threads read. Another thread closes them all."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._closed = False

    def read(self, stream: Stream) -> Result:
        """The whole text, or what there is of it when it is closed. Raises as `Stream`."""
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
        for stream in [*self._open]:
            stream.close()
