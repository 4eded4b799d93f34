"""The seats of a host: contexts with their KV caches, each for one text at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar


class Seat(Protocol):
    def n_cached(self, prompt: Sequence[int], /) -> int: ...
    def close(self) -> None: ...


S = TypeVar("S", bound=Seat)


class Seats(Generic[S]):
    """At most `n_most` seats, created when needed. Use it only in the thread of the event loop."""

    def __init__(self, make: Callable[[], S], n_most: int) -> None:
        self._make, self.n_most = make, n_most
        self._free: list[S] = []
        self._n = 0  # created or being created
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Future[None]] = set()
        self._closed = False

    def _best(self, prompt: Sequence[int]) -> S | None:
        """The free seat with most of the prompt in its cache; None: a new seat is as good and keeps other caches."""
        best, n_best = None, -1
        for seat in self._free:
            n = seat.n_cached(prompt)
            if n > n_best:
                best, n_best = seat, n
        # Nearly all prompts share the first token.
        return best if n_best > 1 or self._n >= self.n_most else None

    async def prepare(self) -> None:
        """Creates the first seat before anybody waits for it. Raises what `make` raises."""
        seat = await self._take(())
        await self.give_back(seat)

    async def take(self, prompt: Sequence[int], wait_s: float) -> S | None:
        """A seat; None: all seats stay taken for `wait_s` seconds. Raises what `make` raises."""
        try:
            return await asyncio.wait_for(self._take(prompt), wait_s if self._n >= self.n_most else None)
        except asyncio.TimeoutError:
            return None

    async def _take(self, prompt: Sequence[int]) -> S:
        async with self._changed:
            while not self._free and self._n >= self.n_most:
                await self._changed.wait()
            if (seat := self._best(prompt)) is not None:
                self._free.remove(seat)
                return seat
            self._n += 1
        making = asyncio.ensure_future(asyncio.to_thread(self._make))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._keep)  # the caller is gone, and a thread cannot be cancelled
            raise
        except BaseException:
            await self._gone()
            raise

    def _keep(self, made: asyncio.Future[S]) -> None:
        later = self._gone() if made.cancelled() or made.exception() else self.give_back(made.result())
        self._tasks.add(task := asyncio.ensure_future(later))
        task.add_done_callback(self._tasks.discard)

    async def _gone(self) -> None:
        async with self._changed:
            self._n -= 1
            self._changed.notify()

    async def give_back(self, seat: S) -> None:
        """The seat's text has ended."""
        if self._closed:
            await asyncio.to_thread(seat.close)
            return
        async with self._changed:
            self._free.append(seat)
            self._changed.notify()

    async def drop(self, seat: S) -> None:
        """Removes a seat whose model failed."""
        await asyncio.to_thread(seat.close)
        await self._gone()

    async def close(self) -> None:
        """Closes all free seats now, and the others when they are given back."""
        self._closed = True
        while self._free:
            await asyncio.to_thread(self._free.pop().close)
