"""Figures of the network: bytes, round trip, reconnects."""

from __future__ import annotations

import threading
from collections import deque
from statistics import median_low
from typing import Any

# Added to the bytes of a message: gRPC's prefix and the header of an HTTP/2 frame. TCP and TLS are not counted.
N_FRAME = 5 + 9


class NetworkFigures:
    """Counters that any thread may read and change. Bytes are the bytes of messages and their HTTP/2 frames."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: the garbage collector may end a text while the lock is held
        self._counts = dict.fromkeys(("sent_bytes", "received_bytes", "sent_n", "received_n", "lost_n"), 0)
        self._round_trips_us: deque[float] = deque(maxlen=5)
        self._round_trip_us = 0.0  # 0: not measured
        self._before = dict(self._counts)

    def sent(self, n_bytes: int) -> None:
        with self._lock:
            self._counts["sent_bytes"] += n_bytes + N_FRAME
            self._counts["sent_n"] += 1

    def received(self, n_bytes: int) -> None:
        with self._lock:
            self._counts["received_bytes"] += n_bytes + N_FRAME
            self._counts["received_n"] += 1

    def lost(self) -> None:
        with self._lock:
            self._counts["lost_n"] += 1
            self._round_trips_us.clear()

    def round_trip(self, us: float) -> None:
        # The median, because a host that was frozen for a second is not a second away.
        with self._lock:
            self._round_trips_us.append(us)
            self._round_trip_us = median_low(self._round_trips_us)

    @property
    def round_trip_ms(self) -> float:
        with self._lock:
            return self._round_trip_us / 1e3

    def begin_text(self) -> None:
        """Starts the figures of a new text."""
        with self._lock:
            self._before = dict(self._counts)
            if not self._round_trips_us:  # the value belongs to a lost connection
                self._round_trip_us = 0.0

    def of_text(self) -> dict[str, Any]:
        """Figures of the current or last text, for Result.timings."""
        with self._lock:
            out = {f"network_{name}": n - self._before[name] for name, n in self._counts.items()}
            return out | {"network_round_trip_ms": self._round_trip_us / 1e3}
