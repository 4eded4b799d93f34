"""What was counted: texts, those that differ, answers without their form, seeds that do not repeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from duo.benchmark.prove.cases import Case
from duo.benchmark.prove.compare import Difference, difference
from duo.benchmark.prove.form import fault
from duo.benchmark.prove.plan import Item
from duo.benchmark.prove.text import ProvedText


@dataclass
class Tally:
    """The texts of one case. guesses: what guessed; of a server its name."""

    guesses: str
    case: str
    at_once: int
    n_texts: int = 0
    n_sampled: int = 0
    n_arguments: int = 0  # calls and answers in JSON that were not cut
    n_refused: int = 0  # the server was full
    n_drafted: int = 0
    n_accepted: int = 0
    differences: list[Difference] = field(default_factory=list)
    bad_arguments: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # texts that ended with an error
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, guesses: str, case: Case) -> Tally:
        return cls(guesses, case.name, case.at_once)

    @property
    def n_unrepeated(self) -> int:
        """Sampled texts that are not those of their seed."""
        return sum(d.item.kind == "sampled" for d in self.differences)

    @property
    def worst(self) -> Difference | None:
        return max(self.differences, key=lambda d: d.badness, default=None)

    @property
    def is_clean(self) -> bool:
        return not (self.differences or self.bad_arguments or self.failures)

    @property
    def is_unproved(self) -> bool:
        """Nothing was compared, because the server was full."""
        return self.n_refused > 0 and self.n_texts == 0

    def add(self, item: Item, right: ProvedText, written: ProvedText) -> None:
        """Compares a text with its reference."""
        self.n_texts += 1
        self.n_sampled += item.kind == "sampled"
        self.n_drafted += written.n_drafted
        self.n_accepted += written.n_accepted
        if written.warning:
            self.warnings.append(written.warning)
        if (other := difference(item, right, written)) is not None:
            self.differences.append(other)
        self.check(written)

    def check(self, written: ProvedText) -> None:
        """Whether the arguments parse."""
        if written.arguments is None or written.is_cut:
            return
        self.n_arguments += 1
        if why := fault(written.arguments):
            self.bad_arguments.append(why)


def together(tallies: Iterable[Tally], guesses: str = "", case: str = "") -> Tally:
    """All in one."""
    out = Tally(guesses, case, 0)
    for t in tallies:
        for name in ("n_texts", "n_sampled", "n_arguments", "n_refused", "n_drafted", "n_accepted"):
            setattr(out, name, getattr(out, name) + getattr(t, name))
        for name in ("differences", "bad_arguments", "failures", "warnings"):
            getattr(out, name).extend(getattr(t, name))
    return out


def counts(t: Tally) -> dict[str, Any]:
    """The figures of one, for programs."""
    return {
        "n_texts": t.n_texts,
        "n_different": len(t.differences),
        "n_near_ties": sum(d.is_near_tie is True for d in t.differences),
        "n_arguments": t.n_arguments,
        "n_bad_arguments": len(t.bad_arguments),
        "n_sampled": t.n_sampled,
        "n_unrepeated": t.n_unrepeated,
        "n_failed": len(t.failures),
        "n_refused": t.n_refused,
        "draft_n": t.n_drafted,
        "draft_n_accepted": t.n_accepted,
    }


def as_json(tallies: Sequence[Tally], head: dict[str, Any], notes: Iterable[str], *, complete: bool) -> dict[str, Any]:
    """Everything. complete: False if the run ended early."""
    return {
        **head,
        "complete": complete,
        "total": counts(together(tallies)),
        "cases": [
            {
                "guesses": t.guesses,
                "case": t.case,
                "at_once": t.at_once,
                **counts(t),
                "differences": [_of_difference(d) for d in t.differences],
                "bad_arguments": t.bad_arguments,
                "failures": t.failures,
            }
            for t in tallies
        ],
        "notes": list(notes),
    }


def _of_difference(d: Difference) -> dict[str, Any]:
    """Tokens and characters are counted from 0."""
    return {
        "kind": d.item.kind,
        "prompt": d.item.i,
        "token": d.at,
        "character": d.at_char,
        "expected": d.expected,
        "found": d.actual,
        "gap": d.gap,
        "gap_is_least": d.is_least,
        "near_tie": d.is_near_tie,
    }
