"""The process of a batch: makes its faults one after the other, and says what each has shown."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import Models, Right
from benchmarks.torture.judge import Seen, WrongError
from benchmarks.torture.plan import Batch
from benchmarks.torture.process import Patience, die_with_parent
from benchmarks.torture.room import Room

HANG_S = float(os.environ.get("TORTURE_HANG_S", "150"))


@dataclass
class Worker:
    """A worker as its parent sees it."""

    batch: Batch
    pid: int
    reading: int  # descriptor
    log: Path
    folder: Path
    now: int | None = None  # the fault that is being made
    heard: float = 0.0
    patience: Patience = field(default_factory=lambda: Patience(HANG_S))
    rest: bytes = b""
    closed: bool = False  # it has made all its faults


def start(
    batch: Batch, numbers: Iterable[int], folder: Path, cache: Path, models: Mapping[str, Models],
    rights: Mapping[str, list[Right]], log: Path,
) -> Worker:  # fmt: skip
    """Forks it. This process must have one thread only."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Worker(batch, pid, reading, log, folder, heard=time.monotonic())
    try:
        os.close(reading)
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, to in ((null, 0), (out, 1), (out, 2)):
            os.dup2(fd, to)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        faulthandler.enable(sys.stderr)
        faulthandler.register(signal.SIGUSR1, sys.stderr)
        _work(batch, list(numbers), folder, cache, models, rights, writing)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
        os._exit(70)
    os._exit(0)


def _work(
    batch: Batch, numbers: list[int], folder: Path, cache: Path, models: Mapping[str, Models],
    rights: Mapping[str, list[Right]], writing: int,
) -> None:  # fmt: skip
    def say(**what: Any) -> None:
        os.write(writing, json.dumps(what).encode() + b"\n")

    room = Room.open(folder, cache, models, rights)
    room.seed = f"{batch.seed}-{batch.first}"
    raised: list[str] = []

    def unraisable(e: Any) -> None:
        raised.append(f"{e.exc_type.__name__} in {e.object!r}: {e.exc_value}")

    def in_thread(e: Any) -> None:
        raised.append(f"{e.exc_type.__name__} in thread {e.thread and e.thread.name}: {e.exc_value}")

    import threading

    sys.unraisablehook, threading.excepthook = unraisable, in_thread
    kind = None
    number = batch.first
    try:
        for number in numbers:
            say(begin=number)
            seen = Seen()
            if kind is None:
                kind = batch.kind(room, batch.shared_rng())
            kind.fault(batch.rng(number), seen)
            if batch.kind.spawns:
                room.check_children()
            if raised:
                raise WrongError(f"an exception that nobody caught: {raised}")
            say(end=number, seen=asdict(seen))
        if kind is not None:
            kind.close()
        kind = None
        gc.collect()
        room.check_children()
        room.check_files(killed=batch.kind.kills)
        if raised:
            raise WrongError(f"an exception that nobody caught: {raised}")
        room.close()
        say(closed=True)
    except WrongError as e:
        say(wrong=number, what=str(e))
        traceback.print_exc(file=sys.stderr)
    except BaseException as e:
        say(wrong=number, what=f"{type(e).__name__}: {e}")
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        if kind is not None:
            os._exit(0)  # what the fault has spoilt cannot be closed


__all__ = ["HANG_S", "Worker", "start"]
