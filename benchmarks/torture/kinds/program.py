"""The program `duo`: killed, stopped, interrupted, its reader gone, at any time of its life."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import EXACT_ARGS, Right
from benchmarks.torture.judge import Seen, WrongError, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.process import Process
from benchmarks.torture.room import Room
from benchmarks.torture.ways import is_head

# The signal, and the ends that it may cause. An interrupt before Python listens for it kills.
SIGNALS: dict[signal.Signals, tuple[int, ...]] = {
    signal.SIGKILL: (-9, 0),
    signal.SIGTERM: (-15, 0),
    signal.SIGHUP: (-1, 0),
    signal.SIGINT: (130, 0, -2),
    signal.SIGQUIT: (-3, 0),
}


def program_args(room: Room, rng: random.Random, right: Right, n: int, models: str = "demo") -> list[Any]:
    """A random way to write a text with the program."""
    m = room.models[models]
    draft = rng.choice(m.drafts)
    args: list[Any] = ["-m", m.target, *(["-md", draft] if draft is not None else []), "-c", "512", *EXACT_ARGS]
    args += [*right.args(n), "--no-display-prompt", "--mode", rng.choice(("async", "async", "sync", "plain"))]
    if rng.random() < 0.5:
        args += ["--draft", str(rng.choice((1, 2, 4, 8)))]
    if rng.random() < 0.2 and not is_head(draft):
        args += ["--spec-type", "draft-simple,ngram-map-k" if draft is not None else "ngram-map-k"]
    if rng.random() < 0.1:
        args += ["-np", "2"]
    return args


def check_text(p: Process, right: Right, n: int, seen: Seen, *, whole: bool = False) -> None:
    out, text = p.out, right.text(n)
    if whole and out != text + "\n":
        raise WrongError(f"the text is {out[-100:]!r} ({len(out)} characters) instead of {text[-100:]!r} ({len(text)})")
    seen.text_part(out[:-1] if out.endswith("\n") and not text.startswith(out) else out, text)


def check_trace(path: Path) -> None:
    """A trace that was cut off can still be opened: viewers accept a list without its end."""
    data = path.read_text("utf-8", "replace") if path.exists() else ""
    if not data.strip():
        return
    whole = data if data.endswith("\n]") else data[: data.rfind("\n")].rstrip(",") + "\n]"
    try:
        json.loads(whole)
    except ValueError as e:
        if len(data.splitlines()) > 2:
            raise WrongError(f"the trace cannot be opened: {e}: {data[-200:]!r}") from None


class Program(Kind):
    name = "program killed or stopped"
    share = 14
    n_batch = 20
    kills = True

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.lasts_s = 0.6  # a run, about

    def fault(self, rng: random.Random, seen: Seen) -> None:
        models = rng.choice(("demo", "demo", "recurrent"))
        plain = [r for r in self.room.rights[models] if r.is_plain]
        if not plain:
            models = "demo"
        right, n = self.room.right(rng, models, plain=True), rng.choice((20, 80, 160))
        args = program_args(self.room, rng, right, n, models)
        trace, cache = self.room.files / "trace.json", self.room.files / f"prompt-{models}.cache"
        trace.unlink(missing_ok=True)
        args += ["--trace", trace] if rng.random() < 0.3 else []
        args += ["--prompt-cache", cache] if rng.random() < 0.3 else []
        args += ["--prompt-cache-all"] if "--prompt-cache" in args and rng.random() < 0.5 else []
        how = rng.random()
        if how < 0.15:
            seen.count("reader gone")
            self._reader_goes(args, right, n, rng, seen)
        elif how < 0.3:
            seen.count("SIGSTOP")
            self._stopped(args, right, n, rng, seen)
        else:
            self._signalled(args, right, n, rng, seen)
        check_trace(trace)

    def _moment(self, p: Process, rng: random.Random) -> None:
        """A random time of a run: by the clock, or by what has been written."""
        if rng.random() < 0.6:
            time.sleep(rng.uniform(0, 1.2 * self.lasts_s))
        else:
            n = rng.choice((1, 1, 20, 100, 300))
            p.until(lambda: p.out_path.stat().st_size >= n)

    def _signalled(self, args: list[Any], right: Right, n: int, rng: random.Random, seen: Seen) -> None:
        what = rng.choice((*SIGNALS, signal.SIGINT, signal.SIGKILL))
        seen.count(what.name)
        began = time.monotonic()
        p = self.room.nursery.start(*args, real=rng.random() < 0.1)
        self._moment(p, rng)
        p.send(what)
        if what == signal.SIGINT and rng.random() < 0.3:
            time.sleep(rng.uniform(0, 0.05))
            p.send(what)
        code = p.wait()
        if (code, p.out) == (-2, "") and p.err.endswith("\nKeyboardInterrupt\n") and "in main\n" not in p.err:
            seen.count("interrupted while Python imported duo, before its first line")
            return
        check_end(code, p.err, SIGNALS[what])
        check_text(p, right, n, seen, whole=code == 0)
        if code == 0:
            self.lasts_s = 0.8 * self.lasts_s + 0.2 * min(5.0, time.monotonic() - began)

    def _stopped(self, args: list[Any], right: Right, n: int, rng: random.Random, seen: Seen) -> None:
        p = self.room.nursery.start(*args)
        for _ in range(rng.randint(1, 3)):
            time.sleep(rng.uniform(0, 0.5 * self.lasts_s))
            p.send(signal.SIGSTOP)
            time.sleep(rng.uniform(0, 0.05))
            p.send(signal.SIGCONT)
        check_end(p.wait(), p.err, (0,))
        check_text(p, right, n, seen, whole=True)

    def _reader_goes(self, args: list[Any], right: Right, n: int, rng: random.Random, seen: Seen) -> None:
        reading, writing = os.pipe()
        p = self.room.nursery.start(*args, stdout=writing)
        os.close(writing)
        wanted, got = rng.choice((0, 1, 10, 100, 400)), b""
        while len(got) < wanted and (data := os.read(reading, wanted - len(got))):
            got += data
        os.close(reading)
        check_end(p.wait(), p.err, (0,))
        text = got.decode("utf-8", "replace")
        seen.text_part(text.removesuffix("\n") if len(text) > len(right.text(n)) else text, right.text(n))
