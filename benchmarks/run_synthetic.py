"""How well the engine schedules: scripted models with exact timing and a given rate of agreement, cell by cell.

    python benchmarks/run_synthetic.py --grid main --out benchmarks/results/synthetic.json

Every cell is one interleaved run of `duo bench --synthetic` (plain, sync at each length, async), on the real rings,
tree, planner and workers. The script reports async relative to the best sync of the same run, to plain, and to the
formula for hits and misses with the run's own figures. The grid "width" compares auto with each fixed width.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from duo.benchmark.bench.arms import Length, arms_of
from duo.benchmark.bench.head import command_of, head_of, settings_of
from duo.benchmark.bench.measures import best_sync, summarise
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.run import interleaved
from duo.benchmark.bench.synthetic import SyntheticWriter, parse

CPU_V = "v=1@1/1.2@2/1.6@4/2.6@8"
GRIDS: dict[str, list[str]] = {
    "main": [f"a={a},c={c},v=1:0,branch=0.02" for a in (0.7, 0.8, 0.9) for c in (0.1, 0.2, 0.3, 0.5)],
    "poor": [f"a={a},b={b},c={c},v={v},branch=0.02" for a, b in ((0.0, 0.0), (0.3, 0.45)) for c in (0.02, 0.2, 0.7)
             for v in ("1:0", "1:0.1")],
    "cheap": [f"a={a},c={c},v=1:{s},branch=0.02" for a in (0.5, 0.8) for c in (0.01, 0.03, 0.05) for s in (0.02, 0.1)],
    "uneven": [f"a={a},c={c},v=1:0.02" for a in ("0.9/0.4:32", "0.7,burst=0.6", "0.7,burst=0.6,confident=1")
               for c in (0.05, 0.2)],
    "between": [f"a={a},c={c},v=1:0.02,branch=0.02" for a in ("0.6", "0.75", "0.85", "0.75,burst=0.6")
                for c in (0.15, 0.25, 0.7, 1.2)],
    "says": [f"a={a},says={says},c={c},v=1:0.02,branch=0.02" for a, says in ((0.92, 0.7), (0.8, 0.6), (0.6, 0.85))
             for c in (0.1, 0.2, 0.4)],
    "width": [f"a={a},c={c},{CPU_V}" for a in (0.5, 0.7, 0.9) for c in (0.01, 0.05)],
}  # fmt: skip
# Draft lengths for turn-taking; long ones where they may pay off.
SYNC_LENGTHS = {"main": "1,2,3,4,5,6,8,10,13", "poor": "1,2,4", "cheap": "2,3,4,6,8,10,13", "uneven": "1,2,3,4,6,8,10",
                "between": "1,2,3,4,6,8", "says": "1,2,3,4,6,8", "width": "1,2,3,4,6"}  # fmt: skip


def measure(grid: str, spec: str, args: argparse.Namespace, lengths: list[Length]) -> dict[str, Any]:
    options = parse(f"{spec},pass={args.pass_ms}ms")
    writer = SyntheticWriter(options, args.n, fixed=grid == "width")
    sync: list[Length] = [int(k) for k in SYNC_LENGTHS[grid].split(",")]
    questions = [Question(i, "made up", (f"question {i}",)) for i in range(1, args.questions + 1)]
    try:
        records = interleaved(writer, questions, arms_of(["plain", "sync", "async"], sync, lengths), 1, 1)
    finally:
        writer.close()
    best = best_sync(records)
    arms = {s.arm: s for s in summarise(records) if s.category == "all"}
    auto = next(a for a in arms if a.mode == "async" and a.n_draft == "auto")
    s = arms[auto]
    verified = [r.timings["draft_rounds"] / max(1, r.timings["target_passes_n"]) for r in records if r.arm == auto]
    fixed = {a.n_draft: median(arms[a].to_plain) for a in arms if a.mode == "async" and a != auto}
    widths = [r.timings["draft_n"] / max(1, r.timings["draft_rounds"]) for r in records if r.arm == auto]
    return {
        "cell": spec,
        "best_sync_k": best.n_draft if best else None,
        "sync_to_plain": median(arms[best].to_plain) if best else None,
        "async_to_plain": median(s.to_plain),
        "async_to_sync": median(s.to_best_sync),
        "efficiency_hit_miss": s.efficiency_hit_miss,
        "bound_to_plain": s.bound,
        "hit_rate": s.hit_rate,
        "mean_length": s.mean_length,
        "rollback_on_path": s.rollback_share,
        "width": statistics.mean(widths),
        "verified_share": statistics.mean(verified),
        "async_fixed_to_plain": fixed,
        "equal": s.equal_share,
    }


def median(spread: Any) -> float | None:
    return None if spread is None else float(spread.median)


def show(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--grid", action="append", choices=GRIDS, help="may be repeated; default: all")
    p.add_argument("--pass-ms", type=float, default=20.0)
    p.add_argument("-n", type=int, default=256, help="tokens per text")
    p.add_argument("--questions", type=int, default=4)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    cells: dict[str, list[dict[str, Any]]] = {}
    for grid in args.grid or GRIDS:
        lengths: list[Length] = ["auto", 1, 2, 3, 4, 6, 8] if grid == "width" else ["auto"]
        print(
            f"\n{grid}\n| cell | best sync k | sync / plain | async / plain | async / best sync | hit/miss formula "
            "| hits | tokens a verification | width | verified | rolled back |\n|" + "---|" * 11
        )
        for spec in GRIDS[grid]:
            r = measure(grid, spec, args, lengths)
            cells.setdefault(grid, []).append(r)
            print(
                f"| {spec} | {r['best_sync_k']} | {r['sync_to_plain']:.3f} | {r['async_to_plain']:.3f} "
                f"| {r['async_to_sync']:.3f} | {show(r['efficiency_hit_miss'])} | {show(r['hit_rate'])} "
                f"| {show(r['mean_length'])} | {r['width']:.1f} | {r['verified_share']:.2f} "
                f"| {show(r['rollback_on_path'])} |" + (f" {r['async_fixed_to_plain']}" if len(lengths) > 1 else ""),
                flush=True,
            )
        ratios = [r["async_to_sync"] for r in cells[grid]]
        print(f"async / best sync: mean {statistics.mean(ratios):.3f}, least {min(ratios):.3f}")
    if args.out:
        head = head_of([], command_of(sys.argv), settings_of(vars(args)))
        args.out.write_text(json.dumps({"head": head, "cells": cells}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
