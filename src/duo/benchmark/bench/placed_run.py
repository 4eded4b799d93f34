"""The run of `duo bench --placements`: every placement is loaded in turn and answers all questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

from duo.benchmark.bench.arms import PLAIN
from duo.benchmark.bench.measures import ALL, Summary, best_sync, summarise
from duo.benchmark.bench.places import BenchPlacement
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import AnswerRecord
from duo.benchmark.bench.run import Progress, TurnWriter, interleaved
from duo.errors import DuoError

# Loads the models of a placement.
Open = Callable[[BenchPlacement], AbstractContextManager[TurnWriter]]


@dataclass
class MeasuredPlacement:
    """What was measured of a placement."""

    placement: BenchPlacement
    records: list[AnswerRecord]
    failure: str = ""  # why it could not be measured


def run(
    open_writer: Open,
    questions: Sequence[Question],
    placements: Sequence[BenchPlacement],
    repetitions: int = 1,
    warm_up: int = 0,
    progress: Progress = lambda _done, _total, _name: None,
) -> list[MeasuredPlacement]:
    """Measures all placements in each repetition, one after the other, because few machines hold several at once.

    A placement that fails is reported as such; the others go on. Ctrl-C ends the run early and returns what was
    measured; then the last `done` that `progress` gets is below the total.

    Raises KeyboardInterrupt: nothing was measured before Ctrl-C.
    """
    measured = [MeasuredPlacement(p, []) for p in placements]
    sizes = [(warm_up + len(questions)) * len(p.arms) for p in placements]
    n_all, n_done = repetitions * sum(sizes), 0
    try:
        for repetition in range(repetitions):
            for placed, size in zip(measured, sizes, strict=True):
                p = placed.placement
                last = 0

                def report(done: int, _total: int, name: str, before: int = n_done, where: str = p.name) -> None:
                    nonlocal last
                    last = done
                    progress(before + done, n_all, f"{where}: {name}" if name else "")

                if not placed.failure:
                    progress(n_done, n_all, p.name)
                    try:
                        with open_writer(p) as writer:
                            records = interleaved(writer, questions, p.arms, 1, warm_up, report)
                    except DuoError as e:
                        placed.failure = str(e)
                        records = []
                    placed.records += [replace(r, repetition=repetition) for r in records]
                    if not placed.failure and last < size:
                        raise KeyboardInterrupt
                n_done += size
        progress(n_done, n_all, "")
    except KeyboardInterrupt:
        if not any(x.records for x in measured):
            raise
    return measured


def figures_of(measured: Sequence[MeasuredPlacement]) -> list[tuple[MeasuredPlacement, list[Summary]]]:
    """The arms of each placement over all questions, compared with the first placement's plain texts."""
    base = [r for r in measured[0].records if r.arm == PLAIN]
    out = []
    for placed in measured:
        if placed is measured[0] or any(r.arm == PLAIN for r in placed.records):
            # Another target alone: its arm gets another name, so that the two are compared.
            records = [replace(r, arm=replace(PLAIN, name="plain here")) for r in placed.records]
        else:
            records = placed.records
        names = {r.arm.name for r in records}
        out.append((placed, [s for s in summarise([*base, *records]) if s.category == ALL and s.arm.name in names]))
    return out


def as_json(
    measured: Sequence[MeasuredPlacement], head: dict[str, Any], notes: Sequence[str], complete: bool
) -> dict[str, Any]:
    """All figures as one JSON object."""
    return {
        **head,
        "complete": complete,
        "placements": [
            {
                "name": placed.placement.name,
                "options": placed.placement.options,
                "failure": placed.failure,
                "best_sync": None if (sync := best_sync(placed.records)) is None else sync.n_draft,
                "summaries": [
                    {"mode": s.arm.mode, "n_draft": s.arm.n_draft, **{k: v for k, v in asdict(s).items() if k != "arm"}}
                    for s in summaries
                ],
            }
            for placed, summaries in figures_of(measured)
        ],
        "notes": list(notes),
    }
