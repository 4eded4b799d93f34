"""How many guesses may be on their way: a slow link must not be filled with what is stale when it arrives."""

from __future__ import annotations

import threading

N_WINDOW = 512  # nodes, about 12 kB: a tenth of a second at 1 Mbit/s, and no bound that a fast link would feel


class Window:
    """The sender's side, for the thread that takes nodes and the one that hears how many have arrived."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sent = self._seen = 0

    def room(self, timeout_s: float) -> bool:
        """Waits for room."""
        with self._changed:
            return self._changed.wait_for(lambda: self._sent - self._seen < N_WINDOW, timeout_s)

    def sent(self, n: int) -> None:
        with self._changed:
            self._sent += n

    def seen(self, n: int) -> None:
        """So many have arrived, all in all; what is less than before, or impossible, is let be."""
        with self._changed:
            if self._seen < n <= self._sent:
                self._seen = n
                self._changed.notify_all()
