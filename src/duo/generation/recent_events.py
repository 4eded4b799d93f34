"""The last events of the workers, in memory, for whoever looks on while texts are written."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duo.support.home_process import PerProcess

if TYPE_CHECKING:
    from duo.generation.trace_writer import Event

N_KEPT = 8192  # as many as the target's ring holds
# Seconds for which events are collected after a look. Afterwards they stay in the workers' rings, which drop events
# that do not fit.
LOOKS_FOR_S = 5.0


class RecentEvents:
    """A trace that keeps the last events. Every method may be called from any thread."""

    def __init__(self, n: int = N_KEPT) -> None:
        """n: number of events."""
        self._lock = PerProcess(threading.Lock)
        self._events: deque[Event] = deque(maxlen=n)
        self._n_all = 0  # events so far
        self._until = 0.0

    @property
    def wanted(self) -> bool:
        """Whether somebody has looked in the last seconds."""
        return time.monotonic() < self._until

    def look(self) -> None:
        """From now on events are wanted, for some seconds."""
        self._until = time.monotonic() + LOOKS_FOR_S

    def add(self, events: Sequence[Event], network: dict[str, Any]) -> None:
        with self._lock():
            self._events.extend(events)
            self._n_all += len(events)

    def since(self, after: int) -> tuple[int, list[Event]]:
        """The number of events so far, and those that came after the first `after` of them, as far as they are kept.

        A number that is too large comes from another server: all events are new then.
        """
        with self._lock():
            n_new = self._n_all - after if 0 <= after <= self._n_all else self._n_all
            return self._n_all, list(self._events)[max(0, len(self._events) - n_new) :]

    def close(self) -> None:
        """What is kept can still be read."""
