"""A kind of fault."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from benchmarks.torture.judge import Seen
from benchmarks.torture.room import Room


class Kind(ABC):
    """Made once for a batch of faults, in the batch's process."""

    name: ClassVar[str]
    share: ClassVar[float]  # of all faults, relative to other kinds
    n_batch: ClassVar[int] = 20  # faults that share a process
    spawns: ClassVar[bool] = True  # may start processes
    kills: ClassVar[bool] = False  # kills processes that have no chance to clear up
    needs: ClassVar[str] = ""  # a module without which there are no such faults

    def __init__(self, room: Room, rng: random.Random) -> None:
        """rng: for what all faults of the batch share."""
        self.room = room

    @abstractmethod
    def fault(self, rng: random.Random, seen: Seen) -> None:
        """One fault, and what must be true after it. Raises WrongError, and whatever else must not be raised."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """The end of the batch. Raises WrongError."""
