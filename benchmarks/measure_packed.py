"""Seconds from the start of a process until a model is loaded and has written a token, and memory of two processes.

    python -m benchmarks.measure_packed MODEL... [--rounds 3] [--out FILE]

Arms: llama-cpp-python, duo that packs while it loads, and duo with a file of `duo pack`, which this writes beside the
model. The memory of two processes is measured if both fit. Warm: the files are in the page cache. Cold: each arm drops
them first. Each round starts every arm in a fresh process, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from duo.benchmark.bench.head import command_of, machine
from duo.models.paths import parts
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE

# Prints the seconds until the model is loaded and until it has written a token, then waits for a line.
DUO = """
import sys, time
began = time.monotonic()
import duo
d = duo.Duo(sys.argv[1], n_ctx=2048, packed=sys.argv[2])
loaded = time.monotonic() - began
d.generate("Write a function.", max_tokens=1)
print(loaded, time.monotonic() - began, flush=True)
sys.stdin.readline()
"""
LLAMA_CPP = """
import sys, time
began = time.monotonic()
import llama_cpp
d = llama_cpp.Llama(sys.argv[1], n_ctx=2048, verbose=False)
loaded = time.monotonic() - began
d("Write a function.", max_tokens=1)
print(loaded, time.monotonic() - began, flush=True)
sys.stdin.readline()
"""
ARMS = {"llama.cpp": (LLAMA_CPP, ""), "duo, packs": (DUO, "off"), "duo, packed file": (DUO, "auto")}
OF_MEMORY = ("Pss", "Rss", "Private_Dirty", "Anonymous")  # of /proc/PID/smaps_rollup


def files(model: Path) -> list[str]:
    return [*parts(str(model)), str(packed.default_path(str(model)))]


def drop(paths: list[str]) -> None:
    for path in paths:
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(paths: list[str]) -> None:
    for path in paths:
        with open(path, "rb") as f:
            while f.read(1 << 24):
                pass


class Process:
    """One that has loaded the model and waits."""

    def __init__(self, arm: str, model: Path) -> None:
        code, packed_option = ARMS[arm]
        self.child = subprocess.Popen(
            [sys.executable, "-c", code, str(model), packed_option],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.child.stdout is not None
        self.loaded, self.first = map(float, self.child.stdout.readline().split())

    def memory(self) -> dict[str, int]:
        """In MB."""
        lines = Path(f"/proc/{self.child.pid}/smaps_rollup").read_text().splitlines()
        found = {
            name: int(value)
            for name, _, value in (line.partition(":") for line in lines)
            for value in value.split()[:1]
            if name in OF_MEMORY
        }
        return {name: round(kb * 1024 / 1e6) for name, kb in found.items()}

    def end(self) -> None:
        self.child.communicate("\n")


def times(model: Path, rounds: int, *, cold: bool) -> dict[str, dict[str, float]]:
    found: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm, seconds in found.items():
            (drop if cold else warm)(files(model))
            p = Process(arm, model)
            p.end()
            seconds.append((p.loaded, p.first))
            print(model.name, "cold" if cold else "warm", arm, f"{p.loaded:.2f} {p.first:.2f}", file=sys.stderr)
    return {
        arm: {name: round(statistics.median(s[i] for s in seconds), 2) for i, name in enumerate(("loaded", "first"))}
        for arm, seconds in found.items()
    }


def memory_of_two(model: Path) -> dict[str, dict[str, int]]:
    """Sums over two processes that have the same model loaded at the same time."""
    found = {}
    for arm in ARMS:
        both = [Process(arm, model) for _ in range(2)]
        figures = [p.memory() for p in both]
        found[arm] = {name: sum(f[name] for f in figures) for name in figures[0]}
        for p in both:
            p.end()
        print(model.name, arm, found[arm], file=sys.stderr)
    return found


def measure(model: Path, rounds: int) -> dict[str, Any]:
    out = packed.default_path(str(model))
    warm(parts(str(model)))
    began = time.monotonic()
    n = packed_writer.pack(str(model), out, NONE, os.cpu_count() or 1)
    seconds = round(time.monotonic() - began, 2)
    os.sync()  # only clean pages can be dropped
    return {
        "bytes": sum(map(os.path.getsize, parts(str(model)))),
        "packed_bytes": n,
        "pack_s": seconds,
        "warm": times(model, rounds, cold=False),
        "cold": times(model, rounds, cold=True),
        "two": memory_of_two(model) if 2 * n < 0.8 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") else {},
    }


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    result = {
        "command": command_of(sys.argv),
        "machine": machine(),
        "models": {m.name: measure(m, args.rounds) for m in args.models},
    }
    print(json.dumps(result["models"], indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
