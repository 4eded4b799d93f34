"""The connections of a Duo to its host: one for each text at once, so that losing one disturbs one text."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from duo.remote.client.client import HostClient
from duo.remote.client.connection import ClientSettings


class Clients:
    """Belongs to a Duo. A text of the engine's slot i uses client i. Any thread may call it."""

    def __init__(self, clients: Sequence[HostClient]) -> None:
        self.clients = list(clients)  # by slot
        self._lock = threading.RLock()  # reentrant: the garbage collector may end a text while the lock is held
        self._running: set[int] = set()  # slots of texts

    @property
    def settings(self) -> ClientSettings:
        return self.clients[0].settings

    def start(self, wait_s: float) -> None:
        """Starts to connect and waits `wait_s` at most for the first result.

        Raises PeerLostError: the host is required and cannot be reached, or it does not fit.
        """
        self.clients[0].start()
        self.clients[0].wait_connected(wait_s)
        for c in self.clients[1:]:
            c.start()

    def close(self) -> None:
        """Ends all connections. The engine may be closed before or afterwards."""
        for c in self.clients:
            c.ask_to_end()
        for c in self.clients:
            c.close()

    @property
    def host_model(self) -> str:
        """The name of the host's model; empty: not known yet."""
        return next((name for c in self.clients if (name := c.host_model)), "")

    @property
    def notice(self) -> str:
        """A security notice about these connections; usually empty."""
        return self.clients[0].notice

    def take_warning(self) -> str:
        """The last problem outside a text; each problem is returned once."""
        return next((why for c in self.clients if (why := c.take_warning())), "")

    # ---- texts

    def begin_text(self) -> None:
        """A text is about to begin, at any client that has none."""
        with self._lock:
            for i, c in enumerate(self.clients):
                if i not in self._running:
                    c.begin_text()

    def text_began(self, slot: int) -> None:
        with self._lock:
            self._running.add(slot)

    def end_text(self, slot: int) -> tuple[dict[str, Any], str]:
        """The figures of the text for Result.timings, and a warning; empty: nothing went wrong."""
        with self._lock:
            self._running.discard(slot)
        c = self.clients[slot]
        return c.figures_of_text, c.take_warning()

    @property
    def figures_of_texts(self) -> dict[str, Any]:
        """For the trace: the sums over all clients, and the longest round trip."""
        every = [c.figures_of_text for c in self.clients]
        return {
            name: max(f[name] for f in every) if name.endswith("_ms") else sum(f[name] for f in every)
            for name in every[0]
        }
