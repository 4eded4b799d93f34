"""The run: every arm answers a question before the next question starts, in rotating order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import AnswerRecord, MeasuredAnswer

# Called before each answer with the answers so far, all answers, and the arm's name; at the end with an empty name.
Progress = Callable[[int, int, str], None]


class TurnWriter(Protocol):
    """Generates texts: with loaded models (DuoWriter) or simulated ones (SyntheticWriter)."""

    def write(self, question: Question, arm: Arm) -> Sequence[MeasuredAnswer]:
        """One answer for each turn, in order; fewer if a later turn does not fit."""
        ...


def interleaved(
    writer: TurnWriter,
    questions: Sequence[Question],
    arms: Sequence[Arm],
    repetitions: int = 1,
    warm_up: int = 0,
    progress: Progress = lambda _done, _total, _name: None,
) -> list[AnswerRecord]:
    """Lets all arms answer all questions in turn, so that noise affects all of them equally.

    warm_up: number of questions that each arm answers first, without being measured: caches fill, the planner learns
    costs. Ctrl-C ends the run early and returns what was measured; then the last `done` that `progress` gets is below
    the total.

    Raises KeyboardInterrupt: nothing was measured before Ctrl-C. Raises what the writer raises.
    """
    records: list[AnswerRecord] = []
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
                    records += records_of(arm, question, repetition, answers)
    except KeyboardInterrupt:
        if not records:
            raise
    progress(n_done, n_all, "")
    return records


def records_of(arm: Arm, question: Question, repetition: int, answers: Sequence[MeasuredAnswer]) -> list[AnswerRecord]:
    """The records of the answers to all turns of a question."""
    return [
        AnswerRecord(
            arm=arm,
            question_id=question.question_id,
            category=question.category,
            repetition=repetition,
            turn=turn,
            tokens=tuple(a.tokens),
            t_us=tuple(a.t_us),
            timings=a.timings,
            warning=a.warning,
            served=a.served,
        )
        for turn, a in enumerate(answers)
    ]
