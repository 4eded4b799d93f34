"""Faults of a host at random times: killed, frozen, its network silent or down."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hosts import HostProcess
from proxies import Proxy
from waits import join, wait_until

FAULTS = ("killed", "frozen", "silent", "down")


class Storm:
    """n faults, one after the other, in a thread of its own; the host is well again after each."""

    def __init__(self, host: HostProcess, way: Proxy, n: int, seed: int, is_connected: Callable[[], object]) -> None:
        """is_connected: whether a client is. The host is killed only then, so that there is something to lose."""
        self._host, self._way, self._n, self._is_connected = host, way, n, is_connected
        self._rng = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="storm")

    def __enter__(self) -> "Storm":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        join(self._thread)
        if self._error is not None:
            raise self._error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        kinds = [FAULTS[i % len(FAULTS)] for i in range(self._n)]
        self._rng.shuffle(kinds)
        try:
            for kind in kinds:
                # The client needs some of it to come back: faults hit texts with the draft and without it.
                if self._stop.wait(self._rng.uniform(0.05, 0.8)):
                    return
                # Most are over before the client gives the host up, some after it has.
                self._fault(kind, self._rng.uniform(0.0, 1.0) + (3.5 if self._rng.random() < 0.15 else 0.0))
                self.done[kind] += 1
        except BaseException as e:
            self._error = e

    def _fault(self, kind: str, lasts_s: float) -> None:
        if kind == "killed":
            wait_until(lambda: self._is_connected() or self._stop.is_set(), "nobody comes back to the host")
            self._host.kill()
            self._stop.wait(lasts_s / 4)  # starting takes its time too
            self._host.start()
        elif kind == "frozen":
            self._host.send(signal.SIGSTOP)
            self._stop.wait(lasts_s)
            self._host.send(signal.SIGCONT)
        else:
            self._way.set(kind)
            self._stop.wait(lasts_s)
            self._way.set("up")


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def sockets() -> int:
    return sum(_what_it_is(n).startswith("socket:") for n in os.listdir("/proc/self/fd"))


def _what_it_is(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # another thread has just closed it
        return ""


def children() -> int:
    """Processes that this one has started and that are still there."""
    return sum(len(_children(t)) for t in os.listdir("/proc/self/task"))


def _children(task: str) -> list[str]:
    try:
        return Path(f"/proc/self/task/{task}/children").read_text().split()
    except OSError:
        return []


def held() -> dict[str, int]:
    """What this process holds."""
    return {"threads": threads(), "sockets": sockets(), "processes": children()}


def left(before: dict[str, int], patience_s: float = 60.0) -> dict[str, int]:
    """How much more it holds than before; what is being let go of gets some time."""
    until = time.monotonic() + patience_s
    while True:
        now = held()
        more = {what: now[what] - n for what, n in before.items() if now[what] > n}
        if not more or time.monotonic() > until:
            return more
        time.sleep(0.1)
