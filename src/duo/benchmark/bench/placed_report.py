"""Prints the figures of the placements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from duo.benchmark.bench.head import lines_of
from duo.benchmark.bench.measures import Summary
from duo.benchmark.bench.placed_run import MeasuredPlacement, figures_of
from duo.benchmark.bench.report import number, percent, printer, spread_text
from duo.support.wording import plural

COLUMNS: tuple[tuple[str, Callable[[Summary], str]], ...] = (
    ("", lambda s: "plain" if s.arm.mode == "plain" else s.arm.name),
    ("tokens/s", lambda s: spread_text(1)(s.tokens_per_s)),
    ("to target alone", lambda s: number(2)(s.to_plain.median if s.to_plain else None)),
    ("length", lambda s: number(2)(s.mean_length)),
    ("target busy", lambda s: percent(s.target_busy_share)),
    ("draft busy", lambda s: percent(s.draft_busy_share)),
    ("hidden", lambda s: percent(s.draft_hidden_share)),
    ("equal texts", lambda s: percent(s.equal_share)),
)


def show(
    measured: Sequence[MeasuredPlacement],
    head: dict[str, Any],
    notes: Iterable[str] = (),
    console: Console | None = None,
) -> None:
    """Prints the settings, a line for each placement and arm, and notes."""
    out = printer(console)
    for line in lines_of(head):
        out.print(line, markup=False, soft_wrap=True)
    records = [r for x in measured for r in x.records]
    n = plural(len({r.question_id for r in records}), "question")
    title = f"{n}, {plural(len({r.repetition for r in records}), 'repetition')}: medians (quartiles)"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("placement")
    for name, _ in COLUMNS:
        table.add_column(name, justify="right" if name else "left", no_wrap=name in ("", "tokens/s"))
    for placed, summaries in figures_of(measured):
        name = placed.placement.name
        for s in summaries:
            table.add_row(name, *(text(s) for _, text in COLUMNS))
            name = ""
    out.print(table)
    for placed in measured:
        if placed.failure:
            out.print(f"{placed.placement.name}: not measured: {placed.failure}", markup=False, soft_wrap=True)
    for note in notes:
        out.print(note, markup=False, soft_wrap=True)
