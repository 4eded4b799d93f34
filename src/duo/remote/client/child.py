"""A host in a child process: it listens on a Unix socket that only its parent uses, and is restarted when it ends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from duo.errors import DuoError, PeerLostError
from duo.remote.parent import FOLDER_PREFIX, HOPELESS
from duo.remote.rpc.server import child_env, reach, reason_of

START_S = 600.0  # enough to send a model over a slow network
START_OPTIONAL_S = 20.0  # how long loading waits for a draft; it may join later
_STABLE_S = 10.0  # after this time the pauses between starts begin again with the shortest
_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_REACH_S = 3.0


def _private_folder() -> Path:
    """A folder with mode 0700 and a path short enough for a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    if len(os.fsencode(folder)) <= 80:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/tmp"))


class HostChild:
    """Starts a command, and starts it again whenever it ends, with growing pauses.

    command: makes the command line from the address. The process listens on the address when it is ready.
    servers: must be reachable before each start. name: what the child uses, for messages.
    on_change: called from a thread of this object with "" (ready) or with a sentence (why it is not ready).

    The child ends with this process, because its standard input ends. One thread may use this object; any thread may
    call `close`.
    """

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        *,
        servers: Sequence[str] = (),
        name: str = "the child process",
        on_change: Callable[[str], None] | None = None,
        start_s: float = START_S,
    ) -> None:
        self._folder = _private_folder()
        self.path = self._folder / "socket"
        self.address = f"unix:{self.path}"
        self._command = list(command(self.address))
        self._servers, self._on_change, self._start_s = list(servers), on_change, start_s
        self.name = name
        self.reason = ""  # why it is not ready; "": it is ready
        self.last_reason = ""  # the last reason
        self.hopeless = False  # starting again cannot help, by the exit code of the child
        self.n_started = self.n_ready = 0
        self._known = threading.Event()  # the first start has succeeded or failed
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True, name="duo-child")

    def start(self) -> None:
        """Call once. Does not wait."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process id; None: no process runs."""
        p = self._process
        return None if p is None or p.poll() is not None else p.pid

    def wait_known(self, timeout_s: float | None = None) -> str | None:
        """Waits until the first start has succeeded ("") or failed (the reason). None: time-out."""
        return self.reason if self._known.wait(timeout_s) else None

    def wait_started(self, *, required: bool) -> None:
        """Waits until the first start has succeeded or failed; if it is not required, START_OPTIONAL_S at most.

        Raises PeerLostError: it failed and is required, or it failed for good.
        """
        why = self.wait_known(None if required else START_OPTIONAL_S)
        if why is None:
            self.last_reason = self.last_reason or f"{self.name} is not ready after {START_OPTIONAL_S:g} s"
        if why and (required or self.hopeless):
            self.close()
            raise PeerLostError(why)

    def close(self) -> None:
        """Kills the child. Safe to call twice."""
        with self._lock:
            self._closing.set()
            if self._process is not None:
                self._process.kill()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- the thread

    def _tell(self, reason: str) -> None:
        self.reason = reason
        self.last_reason = reason or self.last_reason
        self._known.set()
        if self._on_change is not None and not self._closing.is_set():
            self._on_change(reason)

    def _watch(self) -> None:
        n_failed = 0
        while not self._closing.is_set():
            try:
                lived_s = self._once()
                n_failed = 0 if lived_s >= _STABLE_S else n_failed
            except DuoError as e:
                self._tell(str(e))
            except OSError as e:
                self._tell(f"the child process for the other model cannot be started ({e.strerror})")
            pause = _PAUSES_S[min(n_failed, len(_PAUSES_S) - 1)]
            n_failed += 1
            self._closing.wait(pause)

    def _once(self) -> float:
        """Runs the child once and reports it. Returns the seconds that it was ready. Raises DuoError and OSError."""
        for server in self._servers:
            reach(server, _REACH_S)
        with suppress(FileNotFoundError):
            self.path.unlink()
        with open(self._folder / "stderr", "w+b") as stderr:
            with self._lock:
                if self._closing.is_set():
                    return 0.0
                # Its own session, so that Ctrl-C in the terminal reaches only the parent.
                self._process = process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=child_env(),
                    start_new_session=True,
                )
            self.n_started += 1
            t_ready = 0.0
            try:
                if self._wait_ready(process):
                    t_ready = time.monotonic()
                    self.n_ready += 1
                    self._tell("")
                    process.wait()
            finally:
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
            if not self._closing.is_set():
                self._tell(self._why(process.returncode, stderr.fileno(), bool(t_ready)))
            return time.monotonic() - t_ready if t_ready else 0.0

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> bool:
        limit = time.monotonic() + self._start_s
        while time.monotonic() < limit:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                return False
            if self.path.exists():
                with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                    s.settimeout(1.0)
                    s.connect(str(self.path))
                    return True
        return False

    def _why(self, code: int, stderr: int, was_ready: bool) -> str:
        size = os.fstat(stderr).st_size
        log = os.pread(stderr, 16_384, max(0, size - 16_384))
        if code == -9 and not was_ready and not log:
            return f"the child process for the other model was not ready in {self._start_s:g} s"
        why = reason_of(code, log, self.name)
        self.hopeless = code == HOPELESS
        return why
