"""The output of `duo make-draft`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from duo.make_draft.candidates import DraftCandidate
from duo.make_draft.make import DraftOutcome
from duo.support.wording import plural

WIDE = 160  # columns of a file: names are on one line
WHEN = (
    "such a draft may pay where most layers of the target are in RAM and the whole draft is on a GPU (-ngld 99), which "
    "was not measured; where both read the same memory, its step takes about the share of a pass that its file has of "
    "the target's"
)


def _row(c: DraftCandidate, best: DraftCandidate | None) -> list[str]:
    f = c.figures
    most = "at most " if f.at_once else ""
    return [
        c.name + (" *" if c is best else ""),
        f"{c.n_bytes / 1e6:,.0f}",
        " ".join(f"{100 * a:.0f}" for a in f.acceptance),
        f"{f.c:.2f}",
        f"{most}{f.expected:.2f}",
        str(f.n_draft),
    ]


def _table(outcome: DraftOutcome) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("draft")
    for name in ("MB", "right, %, by guess", "c", "expected", "guesses"):
        table.add_column(name, justify="right")
    for c in outcome.results.candidates:
        table.add_row(*_row(c, outcome.best))
    return table


def verdict(outcome: DraftOutcome) -> str:
    """One sentence, without a full stop."""
    best = outcome.best
    if best is None:
        return "no draft could be made of this target"
    most = "at most " if best.figures.at_once else ""
    sentence = f"{best.name} is expected to bring {most}{best.figures.expected:.2f} times the speed of the target alone"
    if outcome.gain is not None:
        sentence += f" and was {outcome.gain:.2f} times as fast in a race"
    if outcome.failed:
        sentence += f", and the race failed ({outcome.failed})"
    return f"{sentence}, so a draft made of the target {'pays' if outcome.pays else 'does not pay'} here"


def show(outcome: DraftOutcome) -> None:
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)

    def say(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    out.print(_table(outcome))
    for one in outcome.results.left_out:
        say(f"not measured: {one.name}: {one.why}")
    if outcome.results.n_trials:
        say(f"layers: {plural(outcome.results.n_trials, 'trial')}")
    if outcome.measured:
        say("tokens/s of *: " + ", ".join(f"{name} {speed:.1f}" for name, speed in outcome.measured.items()))


def as_json(outcome: DraftOutcome) -> dict[str, Any]:
    """The outcome as JSON has it. Speeds are multiples of the target alone, times are in ms."""
    best = outcome.best

    def of(c: DraftCandidate) -> dict[str, Any]:
        return {
            "name": c.name,
            "recipe": asdict(c.recipe),
            "bytes": c.n_bytes,
            "acceptance": list(c.figures.acceptance),
            "c": c.figures.c,
            "pass_ms": c.figures.pass_ms,
            "step_ms": c.figures.step_ms,
            "alone_ms": c.figures.alone_ms,
            "expected": c.figures.expected,
            "n_draft": c.figures.n_draft,
            "at_once": c.figures.at_once,
        }

    return {
        "candidates": [of(c) for c in outcome.results.candidates],
        "not_measured": [asdict(one) for one in outcome.results.left_out],
        "layer_trials": outcome.results.n_trials,
        "best": None if best is None else best.name,
        "measured": outcome.measured,
        "gain": outcome.gain,
        "race_failed": outcome.failed or None,
        "pays": outcome.pays,
        "written": None if outcome.written is None else str(outcome.written),
    }
