"""Lets a writer write all texts of its cases, and compares them with the references."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from duo.benchmark.bench.endpoint.bad_answer import BadAnswerError
from duo.benchmark.prove.cases import Case, How
from duo.benchmark.prove.plan import CHATS, Item, Kind
from duo.benchmark.prove.tally import Tally
from duo.benchmark.prove.text import ProvedText
from duo.errors import BadValueError, BusyError, DuoError, PeerLostError
from duo.generation.many import as_they_end
from duo.support.wording import one_line

References = dict[tuple[Kind, int], ProvedText]
Progress = Callable[[int, int, str], None]


class ProofWriter(Protocol):
    """Writes a text. Several threads may call it."""

    def write(self, item: Item, how: How) -> ProvedText:
        """Raises DuoError; BusyError: a server has no room for the text."""
        ...


class Proof:
    """references: the text of each item, which the first writer has written alone. tallies: of all cases so far.

    A server may lack tools or schemas: then there are no references for them, and `notes` says why. n_expected: texts
    of the whole run. progress: called with the texts so far, all of them, and the case.
    """

    def __init__(self, progress: Progress = lambda _done, _all, _name: None) -> None:
        self.references: References = {}
        self.tallies: list[Tally] = []
        self.notes: dict[str, None] = {}
        self.n_expected, self._n_done = 0, 0
        self._progress = progress

    def _report(self, name: str) -> None:
        self._n_done += 1
        self._progress(self._n_done, max(self._n_done, self.n_expected), name)

    def refer(self, writer: ProofWriter, items: Iterable[Item], guesses: str, how: How) -> None:
        """Writes the references, one at a time. Raises DuoError: one cannot be written, and is no chat."""
        first = Tally(guesses, "first answers", 1)
        self.tallies.append(first)
        lacking: set[Kind] = set()
        for item in items:
            if item.kind in lacking:
                continue
            try:
                text = writer.write(item, how)
            except BadValueError as e:
                if item.kind not in CHATS:
                    raise
                if isinstance(e, BadAnswerError) and not e.lacks:  # the server failed, which is no lack of tools
                    first.failures.append(one_line(e, 300))
                    self._report(first.case)
                    continue
                lacking.add(item.kind)
                what = "calls of tools" if item.kind == "call" else "answers in JSON"
                self.notes[f"{what} were left out: {one_line(e, 300)}"] = None
                continue
            self.references[item.key] = text
            first.n_texts += 1
            first.check(text)
            self._report(first.case)

    def measure(self, guesses: str, writer: ProofWriter, case: Case) -> Tally:
        """Writes the texts of a case that have a reference. Raises the last error if each of them failed."""
        tally = Tally.of(guesses, case)
        self.tallies.append(tally)
        items = [x for x in case.items if x.key in self.references]
        for i, outcome in as_they_end(lambda x: _tried(writer, x, case.how), items, case.at_once):
            if isinstance(outcome, ProvedText):
                tally.add(items[i], self.references[items[i].key], outcome)
            elif isinstance(outcome, BusyError):
                tally.n_refused += 1
            else:
                tally.failures.append(one_line(outcome, 300))
                if isinstance(outcome, PeerLostError) and len(tally.failures) == len(items):
                    raise outcome
            self._report(case.name)
        self.notes |= dict.fromkeys(f"{guesses}, {case.name}: {why}" for why in tally.warnings)
        return tally

    def compare(self, guesses: str, name: str, others: References) -> None:
        """The references themselves, with those of another writer."""
        tally = Tally(guesses, name, 1)
        for key, right in others.items():
            if key in self.references:
                tally.add(Item(*key), right, self.references[key])
        self.tallies.append(tally)


def _tried(writer: ProofWriter, item: Item, how: How) -> ProvedText | DuoError:
    try:
        return writer.write(item, how)
    except DuoError as e:
        return e
