"""A process that shall be there as long as this one wants it: a host on a Unix socket that only its parent uses."""

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

from duo.errors import DuoError
from duo.remote.rpc.server import child_env, reach, reason_of

START_S = 600.0  # for a model that goes over a slow network
START_OPTIONAL_S = 20.0  # that a model waits for one that it can do without; it may join later
_STABLE_S = 10.0  # alive so long: the next death is a new story
_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_REACH_S = 3.0

_PREFIX = "duo-child-"

WITH_PARENT = "--end-with-parent"


def end_with_parent(path: str) -> None:
    """For the child, which listens at the socket `path`: ends this process when its standard input, which only the
    parent holds, ends, and removes what a parent that was killed could not."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 1):
                pass
        folder = Path(path).parent
        if folder.name.startswith(_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="duo-with-parent").start()


def _private_folder() -> Path:
    """Of mode 0700, with a name short enough for a socket in it."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(os.fsencode(folder)) <= 80:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))


class Child:
    """Starts a command, and again whenever it ends, with growing pauses. `command` makes it from the address.

    The process listens there when it is ready. `servers` are looked for before each start. `on_change` is called
    from a thread of this object with "" (it is ready) or with a sentence (why it is not). Nothing of it outlives this
    process: the child's standard input ends with it. `name`: of what the child uses, for sentences. Used by one thread,
    `close` by any.
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
        self.reason = ""  # why there is none now; "" while it is ready
        self.last_reason = ""  # why there was none the last time
        self.hopeless = False  # it said so itself: trying again will not help
        self.n_started = self.n_ready = 0
        self._known = threading.Event()  # the first start has gone well or not
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True, name="duo-child")

    def start(self) -> None:
        """Once; returns at once."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the process that runs, or None."""
        p = self._process
        return None if p is None or p.poll() is not None else p.pid

    def wait_known(self, timeout_s: float | None = None) -> str | None:
        """Until the first start has gone well ("") or not (why). None: neither in time."""
        return self.reason if self._known.wait(timeout_s) else None

    def wait_started(self, *, required: bool) -> None:
        """Until the first start has gone well or not; where it is not required, for some time.

        Raises DuoError: not, and it is required or will never.
        """
        why = self.wait_known(None if required else START_OPTIONAL_S)
        if why is None:
            self.last_reason = self.last_reason or f"{self.name} is not ready after {START_OPTIONAL_S:g} s"
        if why and (required or self.hopeless):
            self.close()
            raise DuoError(why)

    def close(self) -> None:
        """Ends the child, at once. Safe to call twice."""
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
        """One life of the child, reported; returns how long it was ready, in seconds. Raises DuoError and OSError."""
        for server in self._servers:
            reach(server, _REACH_S)
        with suppress(FileNotFoundError):
            self.path.unlink()
        with open(self._folder / "stderr", "w+b") as stderr:
            with self._lock:
                if self._closing.is_set():
                    return 0.0
                # A session of its own: Ctrl-C in the terminal is for the parent alone.
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
        said = os.pread(stderr, 16_384, max(0, size - 16_384))
        if code == -9 and not was_ready and not said:
            return f"the child process for the other model was not ready in {self._start_s:g} s"
        why = reason_of(code, said, self.name)
        # Anything else than a server can only be mended by somebody: a file, a device.
        self.hopeless = code == 1 and "RPC server" not in why
        return why
