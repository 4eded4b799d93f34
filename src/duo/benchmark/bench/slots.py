"""Several texts at once: every arm answers all questions with each number of slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import AnswerRecord, MeasuredAnswer
from duo.benchmark.bench.run import Progress, records_of
from duo.generation.many import as_they_end


class SlotsWriter(Protocol):
    """Generates several texts at once (DuoWriter, SyntheticWriter)."""

    def clear(self, questions: Sequence[Question], n: int) -> None:
        """Empties the prompt caches of n slots of what the questions begin with."""
        ...

    def answers(self, question: Question, arm: Arm) -> Sequence[MeasuredAnswer]:
        """One answer for each turn, in order. Several threads call this at once."""
        ...


# Loads the models for so many texts at once.
Open = Callable[[int], AbstractContextManager[SlotsWriter]]


@dataclass(frozen=True)
class Round:
    """All answers of an arm, so many texts at once."""

    slots: int
    arm: Arm
    repetition: int  # from 0
    seconds: float  # from the first question to the last token
    records: tuple[AnswerRecord, ...]


def _round(
    writer: SlotsWriter, questions: Sequence[Question], arm: Arm, slots: int, repetition: int, done: Callable[[], None]
) -> Round:
    writer.clear(questions, slots)
    records: dict[int, list[AnswerRecord]] = {}
    t0 = time.perf_counter()
    for i, answers in as_they_end(lambda q: writer.answers(q, arm), questions, slots):
        records[i] = records_of(arm, questions[i], repetition, answers)
        done()
    seconds = time.perf_counter() - t0
    return Round(slots, arm, repetition, seconds, tuple(r for i in sorted(records) for r in records[i]))


def rounds_of(
    open_writer: Open,
    questions: Sequence[Question],
    arms: Sequence[Arm],
    counts: Sequence[int],
    repetitions: int = 1,
    warm_up: int = 0,
    progress: Progress = lambda _done, _total, _name: None,
) -> list[Round]:
    """Lets all arms answer all questions, with each number of texts at once.

    Ctrl-C ends the run early and returns what was measured; then the last `done` that `progress` gets is below the
    total.

    Raises KeyboardInterrupt: nothing was measured before Ctrl-C. Raises what the writer raises.
    """
    rounds: list[Round] = []
    try:
        for new_round in each_round(open_writer, questions, arms, counts, repetitions, warm_up, progress):
            rounds.append(new_round)
    except KeyboardInterrupt:
        if not rounds:
            raise
    return rounds


def each_round(
    open_writer: Open,
    questions: Sequence[Question],
    arms: Sequence[Arm],
    counts: Sequence[int],
    repetitions: int = 1,
    warm_up: int = 0,
    progress: Progress = lambda _done, _total, _name: None,
) -> Iterator[Round]:
    """The rounds of `rounds_of` as they end.

    The models are loaded anew for each number; the arms take turns on them in rotating order. warm_up: texts for each
    slot that each arm writes after loading, without being measured. Raises what the writer raises.
    """
    n_all = repetitions * len(arms) * sum(warm_up * n + len(questions) for n in counts)
    n_done, name = 0, ""

    def report() -> None:
        nonlocal n_done
        n_done += 1
        progress(n_done, n_all, name)

    try:
        for repetition in range(repetitions):
            for n in counts:
                with open_writer(n) as writer:
                    first = (repetition + counts.index(n)) % len(arms)
                    turn = [*arms[first:], *arms[:first]]
                    for measured in (False, True) if warm_up > 0 else (True,):
                        to_answer = questions if measured else list(islice(cycle(questions), warm_up * n))
                        for arm in turn:
                            name = f"{arm.name} x{n}"
                            progress(n_done, n_all, name)
                            new_round = _round(writer, to_answer, arm, n, repetition, report)
                            if measured:
                                yield new_round
    finally:
        progress(n_done, n_all, "")
