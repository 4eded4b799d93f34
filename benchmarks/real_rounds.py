"""Several runs of run_real.py as one run whose times are the medians of theirs, text by text.

    python -m benchmarks.real_rounds FILE FILE FILE --out FILE

All runs must be of one machine, of one commit and of the same arguments.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.real_tables import ALONE, ASYNC, SYNC, Cell, Texts, printed, ratios, title

MEDIANS = ("first_s", "total_s", "right")


def _of_texts(runs: Sequence[Texts]) -> Texts:
    found: Texts = []
    for same in zip(*runs, strict=True):
        text = {**same[0], "equal": all(t["equal"] for t in same)}
        for name in MEDIANS:
            values = [t[name] for t in same if t[name] is not None]
            text[name] = statistics.median(values) if values else None
        found.append(text)
    return found


def merged(runs: Sequence[Sequence[Cell]]) -> list[Cell]:
    """The cells of one run. Raises ValueError: the runs have other cells, arms or texts."""
    cells: list[Cell] = []
    for same in zip(*runs, strict=True):
        if len({(title(c), *c["arms"]) for c in same}) != 1:
            raise ValueError("the runs have different cells or arms; give runs of the same arguments")
        arms = {name: _of_texts([c["arms"][name] for c in same]) for name in same[0]["arms"]}
        cells.append({**same[0], "arms": arms})
    return cells


def by_text(cell: Cell) -> Iterator[str]:
    """Each text of async: to the target alone, and to the turn-taking that was best for it, chosen afterwards."""
    to_alone = ratios(cell, ASYNC, ALONE)
    to_best = [min(x) for x in zip(*(ratios(cell, ASYNC, a) for a in cell["arms"] if a.startswith(SYNC)), strict=True)]
    yield "| work | prompt, tokens | answer, tokens | right guesses | to the target alone | to the best turn-taking |"
    yield "|---|---|---|---|---|---|"
    for text, alone, best in zip(cell["arms"][ASYNC], to_alone, to_best, strict=True):
        right = "" if text["right"] is None else f"{text['right']:.0%}"
        kind = text["category"].replace("_", " ")
        yield f"| {kind} | {text['n_prompt']} | {text['n_tokens']} | {right} | {alone:.2f} | {best:.2f} |"
    yield f"| median (worst) | | | | {_spread(to_alone)} | {_spread(to_best)} |"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    runs: list[dict[str, Any]] = [json.loads(path.read_text("utf-8")) for path in args.runs]
    cells = merged([run["cells"] for run in runs])
    if args.out is not None:
        whole = {**runs[0], "command": [run["command"] for run in runs], "cells": cells}
        args.out.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    for part in printed(cells):
        print(part, end="\n\n")
    for cell in cells:
        print(f"{title(cell)}, async by text:", "", *by_text(cell), sep="\n", end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
