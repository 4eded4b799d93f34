"""Writes docs/what_a_draft_brings.md: c, a and v of real pairs as `duo tune` measures them, and what follows from them.

    make models
    python -m benchmarks.draft_brings               measures (about six minutes on two cores), and writes the page
    python -m benchmarks.draft_brings --page        only the page, from results/draft_brings.json

Each pair is measured with default options and with a core for each model, greedy and at temperature 0.8, on three
questions of Spec-Bench in ChatML (real_questions.py). What to expect of the pairs in models.yaml comes from the
formulas of duo.benchmark.bench.expected, from their sizes. run_boxes.py has scripted the larger machines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.draft_page import page
from benchmarks.real_questions import chosen
from benchmarks.run_real import DRAFT, MODELS, PLACES, TARGET, engine_options, made_wide

import duo
from duo.benchmark.bench.head import machine
from duo.benchmark.tune import tune
from duo.support.other_load import Moment, other_cores

ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "benchmarks/results/draft_brings.json", ROOT / "docs/what_a_draft_brings.md"
BOXES = ROOT / "benchmarks/results/boxes.json"  # of run_boxes.py
TEMPERATURES = (0.0, 0.8)


def pairs(folder: Path, *, wide: bool) -> list[tuple[str, Path, Path]]:
    """Names and files. wide: also the 1.5B as large as a 5B, with its own words; made once."""
    target, draft = MODELS[TARGET].path, MODELS[DRAFT].path
    small = MODELS["smollm2-135m-q4_1"].path
    found = [("Qwen2.5-Coder 1.5B, draft 0.5B", target, draft)]
    if wide:
        found.append(("the 1.5B widened to 3.2 GB, draft 0.5B", made_wide(target, "3.2G", folder), draft))
    return [*found, ("SmolLM2 135M, draft: itself", small, small)]


def measured(name: str, target: Path, draft: Path, place: str, temperature: float) -> dict[str, Any]:
    """The figures of `duo tune`. Raises DuoError."""
    prompts = [q.prompt for q in chosen(3)]
    options = engine_options(place, with_draft=True)
    with duo.Duo(target, draft, temperature=temperature, seed=1, **options) as d:
        before = Moment.now()
        t = tune(d, prompts)
        others = other_cores(before, Moment.now())
    sizes = {"target": target.stat().st_size, "draft": draft.stat().st_size}
    return {"pair": name, "place": place, "temperature": temperature, "bytes": sizes, "other_cores": others} | (
        asdict(t)
    )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--page", action="store_true", help="write the page from what was measured before")
    p.add_argument("--no-wide", action="store_true", help="without the widened target, which takes 3.2 GB")
    p.add_argument("--work", type=Path, default=ROOT / "build/bench", help="folder for the widened target")
    p.add_argument("--out", type=Path, default=RESULT)
    args = p.parse_args()
    os.environ["DUO_PROFILES"] = "off"  # later runs are to start as ever
    if not args.page:
        if missing := [m.name for m in MODELS.values() if not m.is_there()]:
            sys.exit(f"there is no {missing[0]}: run make models")
        args.work.mkdir(parents=True, exist_ok=True)
        rows = []
        cells = product(pairs(args.work, wide=not args.no_wide), PLACES, TEMPERATURES)
        for (name, target, draft), place, temperature in cells:
            print(f"{name}, {place}, T = {temperature:g}", file=sys.stderr, flush=True)
            try:
                rows.append(measured(name, target, draft, place, temperature))
            except duo.DuoError as e:  # the others stay
                print(f"not measured: {e}", file=sys.stderr, flush=True)
            args.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n", "utf-8")
    found = json.loads(args.out.read_text("utf-8")) if args.out.exists() else None
    scripted = json.loads(BOXES.read_text("utf-8")) if BOXES.exists() else None
    PAGE.write_text(page(found, scripted), "utf-8")


if __name__ == "__main__":
    main()
