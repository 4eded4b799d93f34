"""The output of `duo tune`."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from duo.benchmark.bench.head import lines_of
from duo.benchmark.tuning import Tuning


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _curve(t: Tuning) -> Table:
    table = _table("tokens", "ms", "v(n)")
    for rows, ms in t.pass_ms.items():
        table.add_row(str(rows), f"{ms:.2f}", f"{t.v(rows):.2f}")
    return table


def _steps(t: Tuning) -> Table:
    table = _table("nodes", "ms", "c")
    if t.step_alone_ms is not None:
        table.add_row("1, alone", f"{t.step_alone_ms:.2f}", f"{t.c(t.step_alone_ms):.2f}")
    for nodes, ms in t.step_ms.items():
        table.add_row(str(nodes), f"{ms:.2f}", f"{t.c(ms):.2f}")
    return table


def _speeds(t: Tuning) -> Table:
    table = _table("", "expected", "measured", "vs plain")
    for name in {**t.expected, **t.measured}:
        expected, measured = t.expected.get(name), t.measured.get(name)
        table.add_row(
            name,
            "" if expected is None else f"{expected:.1f}",
            "" if measured is None else f"{measured:.1f}",
            "" if measured is None else f"{measured / t.measured['plain']:.2f}",
        )
    return table


def show(t: Tuning, head: dict[str, Any]) -> None:
    """head: from duo.benchmark.bench.head; its command is the recommended one."""
    out = Console(highlight=False)

    def say(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    for line in lines_of({k: v for k, v in head.items() if k != "settings"}):
        say(line)
    say("\na pass of the target while the draft waits:")
    out.print(_curve(t))
    say("\na step of the draft while the target works:")
    out.print(_steps(t))
    right = " ".join(f"{100 * a:.0f}%" for a in t.acceptance)
    say(f"\ncorrect guesses by level (given that those above are correct): {right}")
    say(f"{100 * t.hidden_share:.0f}% of the draft's time is hidden behind the target; slowdown {t.slowdown:.2f}")
    say("\ntokens/s:")
    out.print(_speeds(t))
    say("")
    for sentence in t.advice.reasons:
        say(sentence)
    say(f"recommended: {head['command']}")
    say(f"saved for later runs in {t.saved}" if t.saved else "not saved: later runs start without these figures")
