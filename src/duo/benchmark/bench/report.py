"""Prints the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.head import lines_of
from duo.benchmark.bench.measures import ALL, Spread, Summary, arms_in, best_sync, summarise
from duo.benchmark.bench.quote import quote
from duo.benchmark.bench.record import AnswerRecord
from duo.support.wording import plural

# The width of tables in a file or a pipe.
WIDTH = 160
# In a narrower terminal, tokens/s have no quartiles, so that no number is cut.
NARROW = 110


def number(digits: int) -> Callable[[float | None], str]:
    return lambda x: "" if x is None else f"{x:.{digits}f}"


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:.0f}%"


def spread_text(digits: int) -> Callable[[Spread | None], str]:
    """Median (quartiles)."""
    return lambda s: "" if s is None else f"{s.median:.{digits}f} ({s.low:.{digits}f}-{s.high:.{digits}f})"


def _speed(s: Summary) -> str:
    return number(1)(s.tokens_per_s.median if s.tokens_per_s else None)


def _by_position(s: Summary) -> str:
    return " ".join(f"{100 * x:.0f}" for x in s.acceptance_by_position[:8])


# Three tables, each narrow enough for a normal terminal.
Column = tuple[str, Callable[[Summary], str]]
SPEED: tuple[Column, ...] = (
    ("tokens/s", lambda s: spread_text(1)(s.tokens_per_s)),
    ("to plain", lambda s: spread_text(2)(s.to_plain)),
    ("to best sync", lambda s: number(2)(s.to_best_sync.median if s.to_best_sync else None)),
    ("first token ms", lambda s: number(1)(s.ttft_ms.median if s.ttft_ms else None)),
    ("ms per token p50", lambda s: number(2)(s.p50_ms)),
    ("p95", lambda s: number(2)(s.p95_ms)),
    ("p99", lambda s: number(2)(s.p99_ms)),
    ("equal texts", lambda s: percent(s.equal_share)),
)
SPECULATION: tuple[Column, ...] = (
    ("length", lambda s: number(2)(s.mean_length)),
    ("accepted", lambda s: percent(s.acceptance)),
    ("by position %", _by_position),
    ("hits", lambda s: percent(s.hit_rate)),
    ("tokens on hit", lambda s: number(2)(s.tokens_on_hit)),
    ("on miss", lambda s: number(2)(s.tokens_on_miss)),
    ("rolled back", lambda s: percent(s.rollback_share)),
)
# Columns whose cells contain a blank and must not be wrapped.
SPREADS = ("tokens/s", "to plain")
USE: tuple[Column, ...] = (
    ("target busy", lambda s: percent(s.target_busy_share)),
    ("draft busy", lambda s: percent(s.draft_busy_share)),
    ("hidden", lambda s: percent(s.draft_hidden_share)),
    ("of the bound", lambda s: percent(s.efficiency)),
    ("of hit/miss", lambda s: percent(s.efficiency_hit_miss)),
)


def _table(rows: Sequence[Summary], columns: Iterable[Column], title: str, width: int) -> Table:
    narrow = width < NARROW
    columns = [("tokens/s", _speed) if narrow and name == "tokens/s" else (name, text) for name, text in columns]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1 if narrow else 2, 0, 0))
    table.add_column("", no_wrap=True)
    cells = [(name, [text(s) for s in rows]) for name, text in columns]
    cells = [(name, column) for name, column in cells if any(column)]  # no empty columns
    for name, _ in cells:
        table.add_column(name, justify="right", no_wrap=name in SPREADS)
    for i, s in enumerate(rows):
        table.add_row(s.arm.name, *(column[i] for _, column in cells))
    return table


def shown_by_category(summaries: Sequence[Summary], sync: Arm | None) -> list[Arm]:
    """The best sync arm, then each async arm."""
    arms = dict.fromkeys(s.arm for s in summaries)
    return [arm for arm in arms if arm == sync or arm.mode == "async"]


def _by_category(summaries: Sequence[Summary], sync: Arm | None) -> Table:
    table = Table(title="speed-up over plain", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("category")
    arms = shown_by_category(summaries, sync)
    for arm in arms:
        table.add_column(arm.name, justify="right")
    by_cell = {(s.category, s.arm): s for s in summaries}
    for category in dict.fromkeys(s.category for s in summaries if s.category != ALL):
        cells = [by_cell.get((category, arm)) for arm in arms]
        table.add_row(category, *("" if s is None else spread_text(2)(s.to_plain) for s in cells))
    return table


def notes_of(records: Sequence[AnswerRecord], sync: Arm | None) -> list[str]:
    """Notes for which the tables have no place: the best sync arm, and warnings of single answers."""
    notes = []
    if sync is not None:
        tried = ", ".join(str(arm.n_draft) for arm in arms_in(records) if arm.mode == "sync")
        notes.append(f"best sync: draft length {sync.n_draft} (of {tried})")
    for arm, why in dict.fromkeys((r.arm.name, r.warning) for r in records if r.warning):
        notes.append(f"{arm}: warning of an answer: {why}")
    return notes


def printer(console: Console | None) -> Console:
    """The given one; None: standard output, wide enough for a table in a file."""
    if console is not None:
        return console
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = WIDTH
    return out


def show(
    records: Sequence[AnswerRecord],
    head: dict[str, Any] | None = None,
    notes: Iterable[str] = (),
    console: Console | None = None,
) -> None:
    """Prints the settings, a line for each arm, speed-ups by category if there are several, notes, a line to quote."""
    out = printer(console)
    summaries, sync = summarise(records), best_sync(records)
    for line in lines_of(head or {}):
        out.print(line, markup=False, soft_wrap=True)
    n_questions = len({r.question_id for r in records})
    n_repetitions = len({r.repetition for r in records})
    overall = [s for s in summaries if s.category == ALL]
    n = f"{plural(n_questions, 'question')}, {plural(n_repetitions, 'repetition')}"
    out.print(_table(overall, SPEED, f"{n}: medians (quartiles)", out.width))
    if speculating := [s for s in overall if s.arm.mode != "plain"]:
        out.print(_table(speculating, SPECULATION, "speculation", out.width))
        out.print(_table(speculating, USE, "use of both models", out.width))
    if any(s.category != ALL for s in summaries) and shown_by_category(summaries, sync):
        out.print(_by_category(summaries, sync))
    for note in [*notes_of(records, sync), *notes]:
        out.print(note, markup=False, soft_wrap=True)
    if line := quote(records, head):
        out.print(line, markup=False, soft_wrap=True)
