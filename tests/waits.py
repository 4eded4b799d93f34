"""Waits that end: for something to become so, for threads, and for what a child process says."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

HANG_S = 50  # less than the bound of a test that is not slow


def wait_until(is_so: Callable[[], object], what: object = "") -> None:
    """what: said if it does not become so."""
    until = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def join(*threads: threading.Thread) -> None:
    until = time.monotonic() + HANG_S
    for t in threads:
        t.join(max(0.0, until - time.monotonic()))
        assert not t.is_alive(), f"{t.name} has not ended"


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Results, or exceptions, of calls that run at the same time."""
    results: list[Any] = [None] * len(calls)

    def run(i: int, call: Callable[[], Any]) -> None:
        try:
            results[i] = call()
        except BaseException as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i, c), daemon=True) for i, c in enumerate(calls)]
    for t in threads:
        t.start()
    join(*threads)
    return results


@contextmanager
def in_time(p: subprocess.Popen[bytes] | subprocess.Popen[str]) -> Iterator[None]:
    """A read from this child's pipes. A child that says nothing for too long is killed, so that the read ends and the
    test fails."""
    hung = threading.Event()

    def end() -> None:
        hung.set()
        p.kill()

    timer = threading.Timer(HANG_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    assert not hung.is_set(), f"{p.args!r} said nothing for {HANG_S} s"


def first_line(p: subprocess.Popen[bytes]) -> str:
    """Of what the child prints; empty if it has ended before."""
    assert p.stdout is not None
    with in_time(p):
        return p.stdout.readline().decode()


def first_bytes(p: subprocess.Popen[bytes], n: int) -> bytes:
    """So many; fewer if the child has ended before."""
    assert p.stdout is not None
    with in_time(p):
        return p.stdout.read(n)
