"""Prints the figures of several texts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from duo.benchmark.bench.head import lines_of
from duo.benchmark.bench.report import number, percent, printer, spread_text
from duo.benchmark.bench.slot_figures import SlotSummary, summarise_slots
from duo.benchmark.bench.slots import Round
from duo.support.wording import plural

COLUMNS: tuple[tuple[str, Callable[[SlotSummary], str]], ...] = (
    ("tokens/s", lambda s: spread_text(1)(s.tokens_per_s)),
    ("to one by one", lambda s: number(2)(s.to_one_by_one)),
    ("to plain", lambda s: number(2)(s.to_plain)),
    ("to best sync", lambda s: number(2)(s.to_best_sync)),
    ("to first server", lambda s: number(2)(s.to_first)),
    ("first token ms", lambda s: number(1)(s.ttft_ms.median if s.ttft_ms else None)),
    ("p99", lambda s: number(1)(s.ttft_p99_ms)),
    ("ms per token p50", lambda s: number(2)(s.p50_ms)),
    ("p99", lambda s: number(2)(s.p99_ms)),
    ("later tokens ms", lambda s: number(2)(s.tpot_ms.median if s.tpot_ms else None)),
    ("p99", lambda s: number(2)(s.tpot_p99_ms)),
    ("good/s", lambda s: number(2)(s.goodput)),
    ("refused", lambda s: percent(s.refused_share)),
    ("accepted", lambda s: percent(s.acceptance)),
    ("equal texts", lambda s: percent(s.equal_share) or "-" * bool(s.arm.server)),
    ("slowest/mean", lambda s: number(2)(s.fairness)),
)


def _table(summaries: Sequence[SlotSummary], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("texts", justify="right")
    table.add_column("", no_wrap=True)
    cells = [(name, [text(s) for s in summaries]) for name, text in COLUMNS]
    cells = [(name, column) for name, column in cells if any(column)]  # no empty columns
    for name, _ in cells:
        table.add_column(name, justify="right", no_wrap=name == "tokens/s")
    before = None
    for i, s in enumerate(summaries):
        table.add_row("" if s.slots == before else str(s.slots), s.arm.name, *(column[i] for _, column in cells))
        before = s.slots
    return table


def show(
    rounds: Sequence[Round], head: dict[str, Any], notes: Iterable[str] = (), console: Console | None = None
) -> None:
    """Prints the settings, a line for each number of texts and arm, and notes."""
    out = printer(console)
    for line in lines_of(head):
        out.print(line, markup=False, soft_wrap=True)
    questions = plural(len({x.question_id for r in rounds for x in r.records}), "question")
    repetitions = plural(len({r.repetition for r in rounds}), "repetition")
    out.print(_table(summarise_slots(rounds), f"{questions}, {repetitions}: all texts together, medians (quartiles)"))
    for name, why in dict.fromkeys((r.arm.name, x.warning) for r in rounds for x in r.records if x.warning):
        out.print(f"{name}: warning of an answer: {why}", markup=False, soft_wrap=True)
    for note in notes:
        out.print(note, markup=False, soft_wrap=True)
