"""Processes that a fault hits, and what is there of them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.torture.judge import WrongError

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
HANG_S = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


def become_reaper() -> None:
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system cannot make a process the parent of orphans")


def die_with_parent(yes: bool = True) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL if yes else 0, 0, 0, 0)


def mount_for_itself() -> None:
    """What this process and its children mount from now on goes when they go. It needs the right to mount."""
    if _libc.unshare(CLONE_NEWNS) == 0:
        _libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)


class Patience:
    """Seconds in which this process was running: when the machine stops it, time stands still."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds
        self._last = time.monotonic()

    def is_over(self) -> bool:
        """Call it often."""
        now = time.monotonic()
        self._left -= min(now - self._last, 0.5)
        self._last = now
        return self._left < 0


@dataclass
class Process:
    """A child of this process. What it says goes to files."""

    pid: int
    out_path: Path
    err_path: Path
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout_s: float = HANG_S) -> int:
        """Raises WrongError: it hangs; it is killed then."""
        patience, pause = Patience(timeout_s), 0.001
        while (code := self.poll()) is None:
            if patience.is_over() and state_of(self.pid) != "T":
                said = self.err[-300:]
                self.kill()
                raise WrongError(f"a process does not end in {timeout_s:g} s; it said {said!r}")
            time.sleep(pause)
            pause = min(0.02, pause * 1.5)
        return code

    def send(self, what: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, what)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    @property
    def out(self) -> str:
        return self.out_path.read_bytes().decode("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.err_path.read_bytes().decode("utf-8", "replace")

    def until(self, there: Callable[[], Any], timeout_s: float = HANG_S) -> bool:
        """Waits until something is there, or the process has ended."""
        patience = Patience(timeout_s)
        while not there():
            if self.poll() is not None:
                return bool(there())
            if patience.is_over():
                raise WrongError(f"a process is not ready in {timeout_s:g} s; it said {self.err[-300:]!r}")
            time.sleep(0.002)
        return True


# ---- what is there


def children(pid: int | None = None) -> set[int]:
    """Processes whose parent is `pid`, by default this one."""
    mine = os.getpid() if pid is None else pid
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_bytes()
                if int(stat.rpartition(b")")[2].split()[1]) == mine:
                    found.add(int(name))
    return found


def state_of(pid: int) -> str:
    """R, S, T, Z, ...; empty: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
