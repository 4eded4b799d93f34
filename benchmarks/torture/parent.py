"""Hands the batches to workers, a few at a time, and gathers what they say. It has one thread and loads no model."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.torture import worker
from benchmarks.torture.catalogue import Models, Right
from benchmarks.torture.judge import Seen
from benchmarks.torture.plan import Batch
from benchmarks.torture.process import Patience, become_reaper, children, state_of
from benchmarks.torture.room import shared_file
from benchmarks.torture.worker import HANG_S, Worker

N_LOG = 20_000
HEADERS = "mutated headers"


@dataclass
class Tally:
    """What a kind of fault has shown."""

    done: int = 0
    seen: Seen = field(default_factory=Seen)
    seconds: float = 0.0  # of its workers


@dataclass(frozen=True)
class Failure:
    number: int
    kind: str
    what: str
    log: str

    def line(self, seed: int) -> str:
        option = "--header" if self.kind == HEADERS else "--only"
        return f"{self.number} ({self.kind}): {self.what}\n  again: --seed {seed} {option} {self.number}"


class Parent:
    def __init__(
        self, folder: Path, cache: Path, models: Mapping[str, Models], rights: Mapping[str, list[Right]],
        n_workers: int,
    ) -> None:  # fmt: skip
        self._folder, self._cache, self._models, self._rights = folder, cache, models, rights
        self._n_workers, self._n = n_workers, 0
        self._select = selectors.DefaultSelector()
        self._workers: dict[int, Worker] = {}
        self._again: list[Batch] = []
        self.tallies: dict[str, Tally] = {}
        self.failures: list[Failure] = []
        self.keep_logs = False
        self.next = {"faults": 0, "headers": 0}  # where the plan goes on
        become_reaper()

    @property
    def n_done(self) -> int:
        return sum(t.done for t in self.tallies.values())

    def run(self, batches: Iterator[Batch], until: float, tell: Callable[[], None]) -> None:
        """Until the batches are through, or the time (time.monotonic) is over; then what runs is still waited for."""
        more = True
        while more or self._again or self._workers:
            late = time.monotonic() > until
            while (more or self._again) and not late and len(self._workers) < self._n_workers:
                batch = self._again.pop() if self._again else next(batches, None)
                if batch is None:
                    more = False
                    break
                of = "headers" if batch.kind.name == HEADERS else "faults"
                self.next[of] = max(self.next[of], batch.first + batch.n)
                self._start(batch)
            if late:
                more, self._again = False, []
            for key, _ in self._select.select(0.4):
                self._hear(key.data)
            for w in list(self._workers.values()):
                if w.patience.is_over():
                    self._hangs(w)
            tell()

    def one(self, batch: Batch, number: int, *, alone: bool) -> None:
        """A single fault; alone, or after those before it in its batch."""
        self._start(replace(batch, begin=number - batch.first if alone else 0), last=number)
        while self._workers:
            for key, _ in self._select.select(0.4):
                self._hear(key.data)
            for w in list(self._workers.values()):
                if w.patience.is_over():
                    self._hangs(w)
            self._again = []

    def end(self) -> None:
        """Kills what still runs: the workers, then the servers and programs that they leave to this process."""
        while left := children():
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        for w in self._workers.values():
            shared_file(w.pid).unlink(missing_ok=True)

    # ----

    def _start(self, batch: Batch, last: int | None = None) -> None:
        self._n += 1
        numbers = [n for n in batch.numbers if last is None or n <= last]
        folder, log = self._folder / f"room{self._n}", self._folder / f"{self._n}.log"
        w = worker.start(batch, numbers, folder, self._cache, self._models, self._rights, log)
        self._workers[w.pid] = w
        self._select.register(w.reading, selectors.EVENT_READ, w)

    def _hear(self, w: Worker) -> None:
        data = os.read(w.reading, 65536)
        w.heard, before = time.monotonic(), w.heard
        w.patience = Patience(HANG_S)
        tally = self.tallies.setdefault(w.batch.kind.name, Tally())
        tally.seconds += w.heard - before
        *lines, w.rest = (w.rest + data).split(b"\n")
        for line in lines:
            self._take(w, tally, json.loads(line))
        if not data:
            self._ended(w)

    def _take(self, w: Worker, tally: Tally, said: Mapping[str, Any]) -> None:
        if "begin" in said:
            w.now = said["begin"]
        elif "end" in said:
            tally.done += 1
            tally.seen.add(Seen(**said["seen"]))
        elif "wrong" in said:
            tally.done += 1
            self._fail(w, said["wrong"], said["what"])
            w.now = said["wrong"]
        elif "closed" in said:
            w.closed = True

    def _fail(self, w: Worker, number: int, what: str) -> None:
        log = w.log.read_bytes()[-N_LOG:].decode("utf-8", "replace") if w.log.exists() else ""
        self.failures.append(Failure(number, w.batch.kind.name, what, log))
        print(f"\nwrong: {self.failures[-1].line(w.batch.seed)}", file=sys.stderr, flush=True)

    def _ended(self, w: Worker) -> None:
        self._select.unregister(w.reading)
        os.close(w.reading)
        _, status = os.waitpid(w.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        del self._workers[w.pid]
        # A header and another fault may have one number.
        told = any((f.number, f.kind) == (w.now, w.batch.kind.name) for f in self.failures)
        if not w.closed and not told:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self.tallies[w.batch.kind.name].done += 1
            self._fail(w, w.batch.first if w.now is None else w.now, f"the process of the fault ended with {how}")
        self._clear()
        shutil.rmtree(w.folder, ignore_errors=True)
        shared_file(w.pid).unlink(missing_ok=True)
        if not w.closed and w.now is not None and w.now + 1 < w.batch.first + w.batch.n:
            self._again.append(replace(w.batch, begin=w.now + 1 - w.batch.first))
        if w.closed and not self.keep_logs:
            w.log.unlink(missing_ok=True)

    def _clear(self) -> None:
        """Ends what a worker that crashed has left."""
        for pid in children() - set(self._workers):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _hangs(self, w: Worker) -> None:
        if state_of(w.pid) == "T":  # somebody has stopped it; time stands still
            w.patience = Patience(HANG_S)
            return
        os.kill(w.pid, signal.SIGUSR1)  # says where it is
        time.sleep(0.5)
        self._fail(w, w.batch.first if w.now is None else w.now, f"nothing happened for {HANG_S:g} s")
        self.tallies.setdefault(w.batch.kind.name, Tally()).done += 1
        os.kill(w.pid, signal.SIGKILL)
        w.patience = Patience(HANG_S)
