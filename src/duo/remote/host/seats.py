"""The seats of a host: slots in the one cache of its model, each for one text at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Seat(Protocol):
    def n_cached(self, prompt: Sequence[int], /) -> int: ...


S = TypeVar("S", bound=Seat)


class Seats(Generic[S]):
    """Use it only in the thread of the event loop."""

    def __init__(self, seats: Sequence[S]) -> None:
        self._free = list(seats)  # the one that was given back last comes last
        self.n = len(seats)
        self._changed = asyncio.Condition()

    def _best(self, prompt: Sequence[int]) -> S:
        """The free seat with most of the prompt in its cache; of equal ones, the one that was used least recently."""

        def n_cached(seat: S) -> int:
            n = seat.n_cached(prompt)
            return n if n > 1 else 0  # nearly all prompts share the first token

        return max(self._free, key=n_cached)

    async def take(self, prompt: Sequence[int], wait_s: float) -> S | None:
        """A seat; None: all seats stay taken for `wait_s` seconds."""
        try:
            return await asyncio.wait_for(self._take(prompt), wait_s)
        except asyncio.TimeoutError:
            return None

    async def _take(self, prompt: Sequence[int]) -> S:
        async with self._changed:
            await self._changed.wait_for(lambda: self._free)
            seat = self._best(prompt)
            self._free.remove(seat)
            return seat

    async def give_back(self, seat: S) -> None:
        """The seat's text has ended."""
        async with self._changed:
            self._free.append(seat)
            self._changed.notify()
