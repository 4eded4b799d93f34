"""The race itself: every question is written by every arm before the next question, in an order that rotates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from duo.measure.bench.arms import Arm
from duo.measure.bench.questions import Question
from duo.measure.bench.record import Answer, Record

# Called before each answer: answers so far, answers in all, the arm's name. And once at the end, with an empty name.
Progress = Callable[[int, int, str], None]


class Writer(Protocol):
    """Whatever writes texts: two loaded models (DuoWriter), or something made up."""

    def write(self, question: Question, arm: Arm) -> Sequence[Answer]:
        """One answer for each turn, the first turn first; fewer where a further turn does not fit."""
        ...


def interleaved(
    writer: Writer,
    questions: Sequence[Question],
    arms: Sequence[Arm],
    repetitions: int = 1,
    warm_up: int = 0,
    progress: Progress = lambda _done, _total, _name: None,
) -> list[Record]:
    """Lets all arms answer all questions, so that a noisy moment hits all of them alike.

    warm_up: each arm first answers so many of the first questions, uncounted: caches fill, the planner learns costs.
    Ctrl-C ends it early: what was measured is returned (then the last `done` told to `progress` is below the total).

    Raises KeyboardInterrupt if nothing was measured by then, and what the writer raises.
    """
    records: list[Record] = []
    rounds = [(-1, q) for q in questions[:warm_up]] + [(r, q) for r in range(repetitions) for q in questions]
    n_done, n_all = 0, len(rounds) * len(arms)
    try:
        for i, (repetition, question) in enumerate(rounds):
            first = i % len(arms)
            for arm in [*arms[first:], *arms[:first]]:
                progress(n_done, n_all, arm.name)
                answers = writer.write(question, arm)
                n_done += 1
                if repetition >= 0:
                    records += [_record(arm, question, repetition, turn, a) for turn, a in enumerate(answers)]
    except KeyboardInterrupt:
        if not records:
            raise
    progress(n_done, n_all, "")
    return records


def _record(arm: Arm, question: Question, repetition: int, turn: int, a: Answer) -> Record:
    return Record(
        arm=arm,
        question_id=question.question_id,
        category=question.category,
        repetition=repetition,
        turn=turn,
        tokens=tuple(a.tokens),
        t_us=tuple(a.t_us),
        timings=a.timings,
        warning=a.warning,
    )
