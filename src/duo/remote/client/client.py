"""The thread that keeps a connection of a Duo to its host: handshake, texts one by one, loss, reconnection."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from duo.errors import DuoError, PeerLostError
from duo.remote.client.connection import (
    Calls,
    CallWithdrawn,
    ClientSettings,
    HostError,
    HostSession,
    LocalModel,
    new_key,
)
from duo.remote.figures import NetworkFigures

BACK_OFF_FIRST_S, BACK_OFF_MOST_S = 0.2, 5.0
HOPELESS_S = 30.0  # pause if only a change of the host can help


class HostClient(ABC):
    """The thread starts with `start` and has ended when `close` returns."""

    def __init__(self, settings: ClientSettings, own: LocalModel) -> None:
        self.settings = settings
        self.figures = NetworkFigures()
        self._own = own
        self._key = new_key()
        self._session: HostSession | None = None
        self._stop = threading.Event()
        self._calls = Calls(lambda: self._stop.is_set() or not self._may_wait())
        self._first = threading.Event()  # the first attempt has succeeded or failed
        self._lock = threading.Lock()
        self._trouble: HostError | None = None  # why there is no session
        self._warning: HostError | None = None  # the last problem, until `take_warning` returns it
        self._back_off_s = BACK_OFF_FIRST_S
        self._thread = threading.Thread(target=self._run, name=f"duo-{settings.role}-host", daemon=True)

    def start(self) -> None:
        """Starts to connect."""
        self._thread.start()

    def wait_connected(self, wait_s: float) -> None:
        """Waits `wait_s` at most for the result of the first attempt.

        Raises PeerLostError: the host is required and cannot be reached, or it does not fit.
        """
        self._first.wait(wait_s)
        with self._lock:
            why = self._trouble
        if self._session is None and why is None:
            why = HostError(f"{self.settings.name} does not answer")
            self._warn(why)
        if why is not None and (self.settings.required or why.hopeless):
            self.close()
            raise PeerLostError(f"{why}; start it, or give another address" if not why.hopeless else str(why))

    @property
    def figures_of_text(self) -> dict[str, Any]:
        """For Result.timings. Empty for a child process: its connection stays on this machine."""
        return {} if self.settings.child is not None else self.figures.of_text()

    @property
    def host_model(self) -> str:
        """The name of the host's model; empty: not known yet."""
        session = self._session
        return session.model if session is not None else ""

    @property
    def notice(self) -> str:
        """A security notice about this connection; usually empty."""
        s = self.settings
        if s.security.token is None or s.security.ca is not None or s.address.is_local:
            return ""
        return f"the token goes to {s.address} without TLS, so others can read it; give --host-ca"

    def begin_text(self) -> None:
        """A new text starts."""
        self.figures.begin_text()
        with self._lock:
            if self._trouble is None:
                self._warning = None

    def take_warning(self) -> str:
        """The last problem; each problem is returned once."""
        with self._lock:
            why, self._warning = self._warning, None
        child = self.settings.child
        if why is not None and not why.hopeless and child is not None and child.last_reason:
            return child.last_reason  # it knows more than the closed socket tells
        return "" if why is None else str(why)

    def ask_to_end(self) -> None:
        """The thread ends soon."""
        self._stop.set()
        self._calls.close()

    def close(self) -> None:
        """Ends the thread and the connection. The engine may be closed before or afterwards."""
        self.ask_to_end()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _named(self, why: HostError) -> str:
        """Why the host was lost, as a sentence with its name."""
        return str(why) if why.named else f"{self.settings.name} was lost ({why})"

    def _remark(self, why: HostError) -> None:
        """Sets the warning of the current text; the session stays."""
        with self._lock:
            self._warning = why

    def _warn(self, why: HostError) -> None:
        with self._lock:
            self._warning = self._trouble = why

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._step()
                except Exception as e:
                    if self._stop.is_set() or self._closed():
                        return
                    # Unexpected: nobody may wait for a thread that has ended.
                    why = HostError(f"the connection to {self.settings.name} failed ({e or type(e).__name__})")
                    self._warn(why)
                    self._give_up(str(why))
                    self._drop()
                    self._first.set()
                    self._pause()
        finally:
            self._first.set()
            self._drop()
            with suppress(DuoError):
                if not self._closed():
                    self._give_up(f"the connection to {self.settings.name} was closed")

    @abstractmethod
    def _step(self) -> None:
        """One step of the thread; takes a limited time."""

    @abstractmethod
    def _closed(self) -> bool:
        """The engine is closed or closing."""

    @abstractmethod
    def _give_up(self, why: str) -> None:
        """Tells the current text, if any, not to wait for the host."""

    def _connect(self) -> HostSession | None:
        """The current session or a new one; None: no connection now."""
        if self._session is not None:
            return self._session
        try:
            session = HostSession(self.settings, self._own, self._key, self._calls)
            self.figures.round_trip(session.round_trip_us)
            self._session = session
        except CallWithdrawn:
            return None
        except HostError as e:
            self._warn(e)
            return None
        except DuoError as e:
            self._warn(HostError(str(e), hopeless=True))
            return None
        finally:
            self._first.set()
        with self._lock:
            self._trouble = None
        return self._session

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _pause(self) -> None:
        """Waits before the next attempt: longer each time, and longest if only a change of the host can help."""
        with self._lock:
            hopeless = self._trouble is not None and self._trouble.hopeless
        until = time.monotonic() + (HOPELESS_S if hopeless else self._back_off_s)
        self._back_off_s = min(BACK_OFF_MOST_S, 2 * self._back_off_s)
        child = self.settings.child
        n_ready = 0 if child is None else child.n_ready  # a child that is ready again ends the pause
        while not self._stop.is_set() and time.monotonic() < until and self._may_wait():
            if child is not None and child.n_ready != n_ready:
                return
            self._stop.wait(0.05)

    def _was_useful(self) -> None:
        """The host was useful: if it is lost, the first pause is short."""
        self._back_off_s = BACK_OFF_FIRST_S

    def _may_wait(self) -> bool:
        """False: somebody waits for this thread to end a text."""
        return True
