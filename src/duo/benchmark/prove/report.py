"""Prints what was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from duo.benchmark.bench.head import lines_of
from duo.benchmark.bench.report import percent, printer
from duo.benchmark.prove.compare import Difference
from duo.benchmark.prove.tally import Tally, together
from duo.support.wording import plural, quoted

N_SHOWN = 12  # findings; JSON has all


def _gap(d: Difference | None) -> str:
    if d is None:
        return ""
    if d.gap is None:
        return "unknown"
    return f"{'> ' if d.is_least else ''}{d.gap:.3f}"


def _near(d: Difference | None) -> str:
    return "" if d is None else {True: "yes", False: "no", None: "unknown"}[d.is_near_tie]


def _place(d: Difference | None) -> str:
    if d is None:
        return ""
    return f"{d.at + 1}" if d.at is not None else "" if d.at_char is None else f"char {d.at_char + 1}"


def _of(n: int, all_: int) -> str:
    return f"{n}/{all_}" if all_ else ""


Column = tuple[str, Callable[[Tally], str]]
ALWAYS = ("texts", "differ")  # columns that are shown even if they are empty
COLUMNS: tuple[Column, ...] = (
    ("texts", lambda t: str(t.n_texts)),
    ("differ", lambda t: str(len(t.differences))),
    ("first token", lambda t: _place(t.worst)),
    ("gap, nats", lambda t: _gap(t.worst)),
    ("near tie", lambda t: _near(t.worst)),
    ("bad JSON", lambda t: _of(len(t.bad_arguments), t.n_arguments)),
    ("seeds not repeated", lambda t: _of(t.n_unrepeated, t.n_sampled)),
    ("failed", lambda t: str(len(t.failures) or "")),
    ("refused", lambda t: str(t.n_refused or "")),
    ("guesses", lambda t: str(t.n_drafted or "")),
    ("right", lambda t: percent(t.n_accepted / t.n_drafted) if t.n_drafted else ""),
)


def rows_of(tallies: Sequence[Tally]) -> list[tuple[str, Tally]]:
    """The same case with several numbers of texts at once is one row: (these numbers, the sum). What guesses comes in
    the order in which it began."""
    order = list(dict.fromkeys(t.guesses for t in tallies))
    groups: dict[tuple[str, str], list[Tally]] = {}
    for t in sorted(tallies, key=lambda t: order.index(t.guesses)):
        groups.setdefault((t.guesses, t.case), []).append(t)
    return [(", ".join(str(t.at_once) for t in same), together(same, *names)) for names, same in groups.items()]


def _table(tallies: Sequence[Tally], title: str) -> Table:
    """What guesses stands in a line of its own, so that the table fits a terminal of 80 columns."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("at once", no_wrap=True)
    rows = rows_of(tallies)
    cells = [(name, [text(t) for _, t in rows]) for name, text in COLUMNS]
    cells = [(name, column) for name, column in cells if name in ALWAYS or any(column)]
    for name, _ in cells:
        table.add_column(name, justify="right", no_wrap=name == "gap, nats")
    before = None
    for i, (at_once, t) in enumerate(rows):
        if t.guesses != before:
            table.add_row(t.guesses)
        table.add_row(f"  {t.case}", at_once, *(column[i] for _, column in cells))
        before = t.guesses
    return table


def findings(tallies: Iterable[Tally]) -> list[str]:
    """A sentence for each text that differs, each answer without its form, each failure; equal ones once."""
    lines: list[str] = []
    for t in tallies:
        where = f"{t.guesses}, {t.case}" + (f", {t.at_once} at once" if t.at_once > 1 else "")
        for d in sorted(t.differences, key=lambda d: d.badness, reverse=True):
            at = f"token {d.at + 1}" if d.at is not None else f"character {(d.at_char or 0) + 1}"
            near = "" if d.gap is None else f"; gap {_gap(d)} nats{', a near tie' if d.is_near_tie else ''}"
            ends = [quoted(x, 40) if x else "the end" for x in (d.expected, d.actual)]
            lines.append(f"{where}: {d.item.kind} text {d.item.i + 1}, {at}: {ends[1]} in place of {ends[0]}{near}")
        lines += [f"{where}: arguments: {why}" for why in t.bad_arguments]
        lines += [f"{where}: a text failed: {why}" for why in t.failures]
    return [line + f" ({n} times)" * (n > 1) for line, n in Counter(lines).items()]


def verdict(tallies: Iterable[Tally]) -> str:
    """All in one line."""
    t = together(tallies)
    near = sum(d.is_near_tie is True for d in t.differences)
    parts = [
        f"{plural(t.n_texts, 'text')}: {len(t.differences)} differ" + (f" ({near} of them near ties)" * bool(near))
    ]
    if t.n_arguments:
        parts.append(f"{len(t.bad_arguments)} of {t.n_arguments} calls and answers in JSON are bad")
    if t.n_sampled:
        parts.append(f"{t.n_unrepeated} of {t.n_sampled} seeds do not repeat")
    parts += [f"{len(t.failures)} failed"] * bool(t.failures) + [f"{t.n_refused} were refused"] * bool(t.n_refused)
    return "; ".join(parts)


def show(
    tallies: Sequence[Tally], head: dict[str, Any], notes: Iterable[str] = (), console: Console | None = None
) -> None:
    """Prints the settings, a line for each case, what was found, notes, and all in one line."""
    out = printer(console)

    def say(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    for line in lines_of({k: v for k, v in head.items() if k != "settings"}):
        say(line)
    s = head["settings"]
    settings = f"{plural(s['prompts'], 'prompt')}, {plural(s['max_tokens'], 'token')}, seed {s['seed']}"
    out.print(_table(tallies, f"{settings}; compared with {head['reference']}"))
    lines = findings(tallies)
    for line in lines[:N_SHOWN]:
        say(line)
    if len(lines) > N_SHOWN:
        say(f"and {len(lines) - N_SHOWN} more findings (--json has all)")
    for note in notes:
        say(note)
    say(verdict(tallies))
