"""Limits how many guesses are in flight, so that a slow link does not fill with guesses that arrive too late."""

from __future__ import annotations

import threading

N_WINDOW = 512  # nodes, about 12 kB: a tenth of a second at 1 Mbit/s, and no limit for a fast link


class Window:
    """The sender's side, used by the thread that takes nodes and the thread that receives acknowledgements."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sent = self._seen = 0

    def room(self, timeout_s: float) -> bool:
        """Waits for room. Returns whether there is some."""
        with self._changed:
            return self._changed.wait_for(lambda: self._sent - self._seen < N_WINDOW, timeout_s)

    def sent(self, n: int) -> None:
        with self._changed:
            self._sent += n

    def seen(self, n: int) -> None:
        """n nodes in total have arrived. Ignores numbers that go back or are impossible."""
        with self._changed:
            if self._seen < n <= self._sent:
                self._seen = n
                self._changed.notify_all()
