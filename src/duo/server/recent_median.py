"""The median of the last values: what other programs on the cores do to one of them does not show."""

from __future__ import annotations

import statistics
from collections import deque

N_LAST = 9


class RecentMedian:
    """For one event loop."""

    def __init__(self, n_last: int = N_LAST) -> None:
        self._last: deque[float] = deque(maxlen=n_last)

    def add(self, value: float) -> None:
        self._last.append(value)

    @property
    def value(self) -> float | None:
        """None: there was no value yet."""
        return statistics.median(self._last) if self._last else None
