"""How many of the experts that passes need are foreseen, by predictor.

    python -m benchmarks.measure_expert_recall [--widen 600M] [--random] [--texts 12] [--widths 1,4,8] [--out FILE]

The models: the trained mixture of tests/data, four times as wide, so that duo's kernels compute all of it; with
--widen also made deeper (its added layers have the router of the layer behind them, so a router applied one layer
early is right more often there); with --random the mixture with random weights of measure_larger_than_memory.
The texts are what the trained mixture writes after held-out prompts, for all models: the same tokens come again, as
in any text. Each text is a prompt of 64 tokens, then passes of the width. Predictors go on learning from text to
text (csrc/experts). The budgets are 1, 1.5 and 2 times the experts that a layer needs in a pass, on average. These
are counts: a busy machine has the same, but for a percent where the texts differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.measure_larger_than_memory import made
from benchmarks.mixture_words import SMALL, passages, widened

from duo import _core
from duo.benchmark import doctor
from duo.benchmark.bench.head import command_of, machine
from duo.gguf_tools.widen import widen
from duo.placement import packed

N_PROMPT = 64
N_TOKENS = 96  # of a text, after its prompt
BUDGETS = (1.0, 1.5, 2.0)
PREDICTORS = {
    "token": "the token's experts before",
    "recent": "the last tokens' experts",
    "router": "the next layer's router",
    "joined": "all, by their rights so far",
}


def foreseeing(model: Path, work: Path) -> _core.Probe:
    """The model with mapped experts, which is what duo foresees."""
    file = work / f"{model.name}.packed"
    if not file.exists():
        subprocess.run([sys.executable, "-m", "duo", "pack", str(model), "-o", str(file)], check=True)
    o = doctor.options(str(model), len(os.sched_getaffinity(0)), _core.kernel_types(), 2 * (N_PROMPT + N_TOKENS))
    o.packed = (os.fsencode(file), packed.source_of(str(model)), False)
    return _core.Probe(o)


def measure(model: Path, work: Path, texts: list[list[int]], width: int) -> dict[str, Any]:
    p = foreseeing(model, work)
    n_products = n_distinct = 0
    for ids in texts:
        p.decode(ids[:N_PROMPT], 0, only_last=True)
        for at in range(N_PROMPT, len(ids) - width + 1, width):
            p.decode(ids[at : at + width], at)
            n_products += p.experts_read[0]
            n_distinct += p.experts_read[1]
    needed = n_distinct / n_products
    return {"needed": round(needed, 2), "recall": {str(b): p.expert_recall(round(b * needed)) for b in BUDGETS}}


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"| model, rows of a pass | experts of a layer | budget | {' | '.join(PREDICTORS.values())} |"]
    lines.append("|" + "---|" * (3 + len(PREDICTORS)))
    for name, by_width in found.items():
        for width, of in by_width.items():
            for budget, recall in of["recall"].items():
                cells = " | ".join(f"{100 * recall[p]:.0f}%" for p in PREDICTORS)
                n = round(float(budget) * of["needed"])
                lines.append(f"| {name}, {width} | {of['needed']:.1f} | {n} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--widen", metavar="SIZE", help="the trained mixture at 600M, 2G, ..., too")
    p.add_argument("--random", action="store_true", help="random weights, too (2.1 GB, made once)")
    p.add_argument("--texts", type=int, default=12)
    p.add_argument("--widths", default="1,4,8", help="rows of a pass")
    p.add_argument("--work", type=Path, default=Path("build/recall"), help="folder for model files")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    texts = passages(args.texts, N_PROMPT + N_TOKENS)
    small = args.work / "mixture-words.gguf"
    if not small.exists():
        widen(SMALL, small, n_embd=1280, n_ff=64)
    files = {"trained": small}
    if args.widen:
        files[f"trained, {args.widen}"] = widened(args.widen, args.work)
    if args.random:
        files["random"] = made(args.work / "mixture-q4_0.gguf")
    _core.foresee_experts("always")
    found: dict[str, dict[str, Any]] = {}
    for name, path in files.items():
        found[name] = {w: measure(path, args.work, texts, int(w)) for w in args.widths.split(",")}
        print(name, found[name], file=sys.stderr)
    result = {"command": command_of(sys.argv), "machine": machine(), "versions": models.versions(), "recall": found}
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
