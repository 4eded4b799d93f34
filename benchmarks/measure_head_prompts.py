"""What MTP layers cost while a prompt is read: its speed with them, relative to the target alone.

PYTHONPATH=tests python -m benchmarks.measure_head_prompts [--target T.gguf] [--rounds 11] --out FILE

Both are loaded at the same time, and read the same prompt in turn, so that load from outside meets both. Without
--target: models of 24 layers with one MTP layer whose weights are made (tests/mtp_models.py). The share of processor
time is the process's own, with what threads spin while they wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtp_models import foreseeing  # tests/mtp_models.py

from duo import Duo
from duo.benchmark.bench.head import command_of, head_of
from duo.models.demo import demo_pair

ARCHITECTURES = ("glm4moe", "hy_v3")
N_TRUNK, N_TOKENS, N_CTX = 24, 4, 1024
PROMPTS = (128, 512, 960)  # tokens
ARMS: dict[str, dict[str, Any]] = {"plain": {"mode": "plain"}, "mtp": {"spec_type": ["draft-mtp"]}}


def read_once(d: Duo, tokens: Sequence[int]) -> dict[str, float]:
    cpu = time.process_time()
    r = d.generate(tokens, max_tokens=N_TOKENS, temperature=0, cache_prompt=False, ignore_eos=True)
    return {"prompt_ms": r.timings["prompt_ms"], "cpu_ms": 1e3 * (time.process_time() - cpu)}


def measure(target: Path, rounds: int) -> dict[str, Any]:
    """Rounds of each prompt, both arms in turn; the first round only warms up."""
    duos = {name: Duo(target, n_ctx=N_CTX, **options) for name, options in ARMS.items()}
    try:
        first = 300  # ordinary tokens only
        found: dict[str, Any] = {"target": head_of([duos["plain"].target], "", {})["target"], "prompts": {}}
        for n in PROMPTS:
            tokens = [first + 7 * i % 2000 for i in range(n)]
            runs = [{name: read_once(d, tokens) for name, d in duos.items()} for _ in range(rounds + 1)][1:]
            found["prompts"][n] = runs
        return found
    finally:
        for d in duos.values():
            d.close()


def ratios(runs: list[dict[str, dict[str, float]]], figure: str) -> list[float]:
    """Of the target alone to MTP, for each round: below 1, MTP is slower."""
    return [r["plain"][figure] / r["mtp"][figure] for r in runs]


def table(found: dict[str, Any]) -> str:
    lines = ["| target | prompt, tokens | speed with MTP / plain: median | worst | best | CPU time: plain / MTP |"]
    lines.append("|---|---|---|---|---|---|")
    for name, one in found.items():
        for n, runs in one["prompts"].items():
            speed, cpu = ratios(runs, "prompt_ms"), ratios(runs, "cpu_ms")
            lines.append(
                f"| {name} | {n} | {statistics.median(speed):.3f} | {min(speed):.2f} | {max(speed):.2f} "
                f"| {statistics.median(cpu):.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", type=Path, help="a file with MTP layers of its own")
    p.add_argument("--rounds", type=int, default=11)
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {args.target.name: args.target} if args.target else {
            f"{name}, {N_TRUNK} layers": foreseeing(name, demo_pair()[1], Path(folder) / f"{name}.gguf", N_TRUNK)
            for name in ARCHITECTURES
        }  # fmt: skip
        found = {name: measure(file, args.rounds) for name, file in files.items()}
    head = {k: v for k, v in head_of([], command_of(sys.argv), {}).items() if k != "settings"}
    args.out.write_text(json.dumps({**head, "targets": found}, indent=1) + "\n", "utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
