"""Seconds until `duo serve` answers a request for which it must load the model again.

    python -m benchmarks.measure_reloads MODEL [--rounds 5] [--out FILE]

Two ways to be without the model: it was freed (--sleep-idle-seconds), or the router has loaded another one in its place
(--models-max 1). Two arms: the weights are packed while they are read, or mapped from a file of `duo pack`, which this
writes into a temporary folder beside the model. Files are in the page cache. Each request is for one token.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
from benchmarks.servers.child import Child, started

from duo.benchmark.bench.head import command_of, machine
from duo.placement import packed_writer
from duo.placement.packing import NONE

ARMS = ("packs", "packed file")
BODY = {"prompt": "Write a function.", "n_predict": 1, "temperature": 0}
PAUSE_S = 0.05  # between two questions
CLIENT = httpx.Client(timeout=600)


def server(*options: str) -> AbstractContextManager[Child]:
    command = [sys.executable, "-m", "duo", "serve", "--port", "{port}", "-c", "2048", *options]
    return started("duo serve", command)


def ask(url: str, **more: Any) -> float:
    """Seconds until it has answered."""
    began = time.monotonic()
    CLIENT.post(url + "/completion", json={**BODY, **more}).raise_for_status()
    return time.monotonic() - began


def cpu_seconds(pid: int) -> float:
    """That a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def after_naps(model: Path, option: str, rounds: int) -> dict[str, float]:
    """Medians: seconds of a request that finds the model loaded, of one after a nap, and of its processor time."""
    with server("-m", str(model), "--packed", option, "--sleep-idle-seconds", "1") as s:
        url = s.url
        ask(url)
        loaded = [ask(url) for _ in range(rounds)]
        slept, cpu = [], []
        for _ in range(rounds):
            while not CLIENT.get(url + "/props").json()["is_sleeping"]:
                time.sleep(PAUSE_S)
            before = cpu_seconds(s.process.pid)
            slept.append(ask(url))
            cpu.append(cpu_seconds(s.process.pid) - before)
    return {name: statistics.median(x) for name, x in (("loaded", loaded), ("nap", slept), ("nap_cpu", cpu))}


def of_router(model: Path, option: str, rounds: int, folder: Path) -> float:
    """Median seconds of requests that name two models in turn, of which one can be loaded."""
    for name in ("a", "b"):
        (folder / f"{name}.gguf").symlink_to(model)
    with server("--models-dir", str(folder), "--models-max", "1", "--packed", option) as s:
        ask(s.url, model="a")
        return statistics.median(ask(s.url, model="ba"[i % 2]) for i in range(rounds))


def measure(model: Path, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix=".duo-", dir=model.parent) as folder:
        file = Path(folder, "weights.packed")
        packed_writer.pack(str(model), file, NONE, os.cpu_count() or 1)
        found: dict[str, Any] = {"bytes": model.stat().st_size, "packed_bytes": file.stat().st_size}
        for arm in ARMS:
            option = "off" if arm == "packs" else str(file)
            models = Path(folder, arm)
            models.mkdir()
            of_both = after_naps(model, option, rounds) | {"router": of_router(model, option, rounds, models)}
            found[arm] = {name: round(seconds, 2) for name, seconds in of_both.items()}
            print(model.name, arm, found[arm], file=sys.stderr)
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("model", type=Path, metavar="MODEL")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    result = {"command": command_of(sys.argv), "machine": machine(), args.model.name: measure(args.model, args.rounds)}
    print(json.dumps(result[args.model.name], indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
