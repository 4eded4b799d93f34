"""Machines that we do not have: the real engine on scripted models, with the pass and step times of larger boxes.

    python -m benchmarks.run_boxes [-n 128] [--questions 5] --out benchmarks/results/boxes.json
    python -m benchmarks.draft_brings --page        writes the table into docs/what_a_draft_brings.md

Passes and steps sleep for the times below, so the machine hardly works, and all cells run side by side (a quarter of
an hour). Where other programs work, give it priority (nice -n -15). How long a pass takes by its rows comes from
measured kernels (results/). Turn-taking makes exactly its number of guesses in each pass: 2, 4, 8, and what the formula
of `duo tune` says is best; async is duo's default.
Every cell writes each question in all ways in turn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duo.benchmark.bench.arms import arms_of
from duo.benchmark.bench.bound import best_sync, overlapped_bound, pass_cost
from duo.benchmark.bench.head import command_of, head_of, settings_of
from duo.benchmark.bench.measures import summarise
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.run import interleaved
from duo.benchmark.bench.synthetic import SyntheticWriter, parse

RESULTS = Path(__file__).parent / "results"
ACCEPTANCES = (0.4, 0.6, 0.8)
LENGTHS = (2, 4, 8)
WIDEST = 16


@dataclass(frozen=True)
class Curve:
    """How long a pass takes by its rows."""

    name: str
    file: str
    keys: tuple[str, ...]  # to the milliseconds by width

    def ms(self) -> dict[int, float]:
        found: Any = json.loads((RESULTS / self.file).read_text("utf-8"))
        for key in self.keys:
            found = found[key]
        ms = {int(w): float(x["duo"]["median"] if isinstance(x, dict) else x) for w, x in found.items()}
        return {w: x for w, x in sorted(ms.items()) if w <= WIDEST}


REPORT = ("steps", "kernels", "data", "types")
DENSE = Curve("Q4_K_M, AVX-512", "report.json", (*REPORT, "q4_K_M", "widths"))
DENSE_AVX2 = Curve("Q4_K, AVX2", "kernels-types-avx2.json", ("types", "q4_K", "widths"))
DENSE_8 = Curve("Q8_0, AVX-512", "report.json", (*REPORT, "q8_0", "widths"))
EXPERTS = Curve("experts in Q4_K, AMX", "mixture-amx.json", ("ms", "q4_K", "duo"))
EXPERTS_AVX2 = Curve("experts in Q4_0, AVX2", "mixture-words-2G.json", ("milliseconds", "q4_0", "duo"))


@dataclass(frozen=True)
class Box:
    """pass_ms: the target over one row. step_ms: the draft."""

    name: str
    pass_ms: float
    step_ms: float
    curves: tuple[Curve, ...]


# 1.4 ms: a round trip of duo's messages on loopback (1.3, results/report.json), and of 10 GbE. Each pass pays it here,
# though running ahead hides it.
ROUND_TRIP_MS = 1.4
BOXES = (
    Box("70B on a 24 GB card, the rest on the CPU", 450, 12, (DENSE, DENSE_AVX2)),
    Box("mixture on a 12 GB card, experts on the CPU, a head", 28, 3, (EXPERTS, EXPERTS_AVX2)),
    Box("two machines: 70B Q8_0 on CPUs, draft on a GPU over 10 GbE", 490 + ROUND_TRIP_MS, 14, (DENSE_8,)),
)


def spec_of(box: Box, ms: Mapping[int, float], a: float) -> str:
    """As `duo bench --synthetic` takes it."""
    v = "/".join(f"{x / ms[1]:.4g}@{w}" for w, x in ms.items())
    return f"a={a},c={box.step_ms / box.pass_ms:.6g},v={v},pass={box.pass_ms}ms"


def measure(box: Box, curve: Curve, a: float, questions: Sequence[Question], n: int) -> dict[str, Any]:
    ms = curve.ms()
    spec = spec_of(box, ms, a)
    c, v = box.step_ms / box.pass_ms, pass_cost(ms)
    k, turns = best_sync([a], c, v, WIDEST - 1)
    writer = SyntheticWriter(parse(spec), n, fixed=True)
    try:
        records = interleaved(writer, questions, arms_of(["plain", "sync", "async"], sorted({*LENGTHS, k}), ["auto"]))
    finally:
        writer.close()
    found = {s.arm.name: s for s in summarise(records)}
    to_plain = {name: s.to_plain.median for name, s in found.items() if s.to_plain is not None}
    ahead = found["async auto"]
    print(f"{spec}: {to_plain}", file=sys.stderr, flush=True)
    return {
        "box": box.name,
        "curve": asdict(curve),
        "a": a,
        "v": [v(4), v(8)],
        "c": c,
        "spec": spec,
        "plain_per_second": None if (p := found["plain"].tokens_per_s) is None else p.median,
        "to_plain": to_plain,
        "hit_rate": ahead.hit_rate,
        "tokens_per_pass": ahead.mean_length,
        "equal": min(s.equal_share or 0.0 for name, s in found.items() if name != "plain"),
        "formula_turns": [k, turns],
        "formula_bound": overlapped_bound([a], c, v, WIDEST - 1),
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-n", type=int, default=128, help="tokens of a text")
    p.add_argument("--questions", type=int, default=5)
    p.add_argument("--out", type=Path, default=RESULTS / "boxes.json")
    args = p.parse_args()
    questions = [Question(i, "made up", (f"question {i}",)) for i in range(1, args.questions + 1)]
    cells = [(box, curve, a) for box in BOXES for curve in box.curves for a in ACCEPTANCES]
    with ThreadPoolExecutor(len(cells)) as pool:
        rows = list(pool.map(lambda cell: measure(*cell, questions, args.n), cells))
    head = head_of([], command_of(["python", "-m", "benchmarks.run_boxes", *sys.argv[1:]]), settings_of(vars(args)))
    args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
