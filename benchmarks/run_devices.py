"""One device or two: the target alone, both models on one device in turn and at once, and each model on its own.

    python -m benchmarks.run_devices --target big.gguf --draft 0.01=small.gguf --draft 0.2=medium.gguf --out FILE

It runs `duo bench --placements` for each draft, which is named by its cost (a draft step / a pass of the target), and
writes all figures to one file. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from duo.benchmark.bench.report import number, percent

ROWS = ("placement", "", "tokens/s", "to target alone", "tokens per pass", "hidden", "target busy", "draft busy")


def measured(target: str, draft: str, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        subprocess.run(
            [sys.executable, "-m", "duo", "bench", "-m", target, "-md", draft, "--placements", args.placements,
             "-n", str(args.tokens), "--temp", str(args.temp), "--ignore-eos", "--questions", str(args.questions),
             "--repetitions", str(args.repetitions), "--sync-lengths", args.sync_lengths,
             *(["-f", args.questions_file] if args.questions_file else []), "--json-file", str(out)],
            check=True,
        )  # fmt: skip
        return dict(json.loads(out.read_text()))


def rows_of(run: dict[str, Any]) -> list[list[str]]:
    rows = []
    for p in run["placements"]:
        for s in p["summaries"]:
            name = "plain" if s["mode"] == "plain" else f"{s['mode']} {s['n_draft']}"
            rows.append([
                p["name"], name, f"{s['tokens_per_s']['median']:.1f}", f"{s['to_plain']['median']:.2f}",
                number(2)(s["mean_length"]), percent(s["draft_hidden_share"]),
                percent(s["target_busy_share"]), percent(s["draft_busy_share"]),
            ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", action="append", required=True, metavar="COST=FILE")
    parser.add_argument("--placements", default="auto")
    parser.add_argument("-f", "--questions-file")
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temp", type=float, default=0)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--sync-lengths", default="2,4")
    parser.add_argument("--out")
    args = parser.parse_args()
    runs = {}
    for named in args.draft:
        cost, _, path = named.partition("=")
        runs[cost] = measured(args.target, path, args)
        print(f"\nc = {cost}\n\n| {' | '.join(ROWS)} |\n|{'---|' * len(ROWS)}")
        for row in rows_of(runs[cost]):
            print(f"| {' | '.join(row)} |", flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
