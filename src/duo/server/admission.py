"""How many texts may be inside: those that are written, and a queue with an end."""

from __future__ import annotations

import math
import time

from duo.server.errors import ApiError

SHARE = 0.2  # weight of the newest text in the mean duration


class Admission:
    """Counts texts from the moment a request has been read, before anything is computed. For one event loop."""

    def __init__(self, n_slots: int, n_queue: int) -> None:
        self.n_slots, self.n_queue = n_slots, n_queue
        self.n_inside = 0
        self._mean_s = 0.0  # seconds of a text, from its turn to its end

    def enter(self, n: int) -> Ticket:
        """Raises ApiError 429: there is no room for n more texts; 400: there never is."""
        n_most = self.n_slots + self.n_queue
        if n > n_most:
            raise ApiError(
                400,
                f"the request is for {n} texts; this server takes at most {n_most} at a time",
                reason="too_many_texts",
            )
        if self.n_inside + n > n_most:
            raise ApiError(
                429,
                f"the queue is full ({self.n_inside} texts, {self.n_slots} slots); try again later",
                headers={"Retry-After": str(self.retry_after_s)},
                reason="queue_full",
            )
        self.n_inside += n
        return Ticket(self, n)

    @property
    def retry_after_s(self) -> int:
        """Seconds until a slot may be free: the texts before, and their mean time."""
        n_waiting = max(0, self.n_inside - self.n_slots)
        return max(1, min(600, math.ceil((n_waiting + 1) / self.n_slots * self._mean_s)))

    def leave(self, n: int, seconds: float | None) -> None:
        """n texts have gone. seconds: how long one of them was written; None: none was."""
        self.n_inside -= n
        if seconds is not None:
            self._mean_s += (seconds - self._mean_s) * (SHARE if self._mean_s else 1.0)


class Ticket:
    """The right of n texts to be inside. Give it back, whatever happens."""

    def __init__(self, admission: Admission, n: int) -> None:
        self._admission, self._n = admission, n
        self.since = time.monotonic()

    def leave(self, seconds: float | None = None) -> None:
        """Safe to call twice."""
        n, self._n = self._n, 0
        if n:
            self._admission.leave(n, seconds)
