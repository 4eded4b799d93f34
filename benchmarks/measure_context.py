"""Compares passes of duo's CPU kernels with stock ones by the length of the context.

    python -m benchmarks.measure_context [--target MODEL] [--contexts 64,2048,8192] [--cores 0-1] [--out FILE]

Both have the same file loaded and take turns, pass by pass. A pass is the median of --rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from benchmarks import models
from benchmarks.run_kernels import SIDES
from benchmarks.run_pair import cores
from benchmarks.run_real import TARGET
from real_models import MODELS  # tools/real_models.py

from duo import _core
from duo.benchmark.bench.head import command_of, machine
from duo.benchmark.doctor import context_of

WIDTHS = (1, 2, 4, 8)
BATCH = 512  # tokens of the prompt in a pass


def fill(p: _core.Probe, tokens: list[int], begin: int) -> None:
    for pos in range(begin, len(tokens), BATCH):
        p.decode(tokens[pos : pos + BATCH], pos, only_last=True)


def measure(path: Path, contexts: list[int], n_threads: int, rounds: int) -> dict[str, Any]:
    n_ctx = contexts[-1] + max(WIDTHS) * 2
    probes = {side: models.probe(path, n_threads, n_ctx, ours=side == "duo") for side in SIDES}
    tokens = context_of(probes["duo"], n_ctx)
    found: dict[str, Any] = {}
    n_filled = 0
    for n in contexts:
        for p in probes.values():
            fill(p, tokens[:n], n_filled)
        n_filled = n
        ms: dict[str, dict[int, list[float]]] = {side: {width: [] for width in WIDTHS} for side in SIDES}
        for r in range(rounds):
            for width in WIDTHS:
                for side in SIDES[:: 1 - r % 2 * 2]:
                    ms[side][width].append(probes[side].decode(tokens[n : n + width], n) / 1000)
        found[str(n)] = {side: {str(w): round(statistics.median(x), 2) for w, x in ms[side].items()} for side in SIDES}
        print(n, found[str(n)], file=sys.stderr)
    return found


def table(found: dict[str, Any]) -> str:
    lines = [f"| context | kernels | {' | '.join(f'{w}, ms' for w in WIDTHS)} |", "|" + "---|" * (2 + len(WIDTHS))]
    for n, sides in found.items():
        for side, ms in sides.items():
            lines.append(f"| {n} | {side} | {' | '.join(f'{ms[str(w)]:.1f}' for w in WIDTHS)} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target", default=TARGET, choices=MODELS)
    p.add_argument("--contexts", default="64,2048,8192", help="tokens before the pass")
    p.add_argument("--cores", default="0-1", help="LO-HI, one thread per core")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    model = MODELS[args.target]
    if not model.is_there():
        sys.exit(f"there is no {model.name}: run make models")
    on = cores(args.cores)
    os.sched_setaffinity(0, on)
    contexts = sorted(int(n) for n in args.contexts.split(","))
    found = measure(model.path, contexts, len(on), args.rounds)
    if args.out:
        about = {
            "machine": machine(),
            **models.versions(),
            "cores": args.cores,
            "model": args.target,
            "rounds": args.rounds,
        }
        args.out.write_text(json.dumps({**about, "command": command_of(sys.argv), "ms": found}, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
