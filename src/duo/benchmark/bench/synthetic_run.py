"""`duo bench --synthetic`: measures, prints and writes the figures of simulated models."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duo.benchmark.bench import files, report, slot_figures, slot_report
from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.head import head_of
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.run import Progress, interleaved
from duo.benchmark.bench.slots import rounds_of
from duo.benchmark.bench.synthetic import SyntheticWriter, parse

N_QUESTIONS = 4
N_QUESTIONS_SLOTS = 8  # at least; as many as there are texts at once


class Counted:
    """Progress that is passed on and remembered."""

    def __init__(self, shown: Progress) -> None:
        self._shown, self._done, self._total = shown, 0, 0

    def __call__(self, done: int, total: int, name: str) -> None:
        self._done, self._total = done, total
        self._shown(done, total, name)

    @property
    def complete(self) -> bool:
        return self._done >= self._total

    @property
    def notes(self) -> list[str]:
        """That the run ended early, if it did."""
        if self.complete:
            return []
        return [f"ended early: {self._done} of {self._total} answers were written, including warm-up"]


def _head(
    spec: str, arms: Sequence[Arm], n_predict: int, repetitions: int, slots: Sequence[int] | None = None
) -> dict[str, Any]:
    settings = {"synthetic": spec, "max_tokens": n_predict, "repetitions": repetitions, "warm_up": 1}
    command = ["duo", "bench", "--synthetic", spec, "-n", str(n_predict), "--repetitions", str(repetitions)]
    lengths = {mode: [str(arm.n_draft) for arm in arms if arm.mode == mode] for mode in ("sync", "async")}
    words: dict[str, list[str]] = {
        "modes": list(dict.fromkeys(arm.local_mode for arm in arms)),
        "sync-lengths": lengths["sync"],
        "lengths": lengths["async"],
        "slots": [str(n) for n in slots or ()],
    }
    for name, values in words.items():
        command += [f"--{name}", ",".join(values)] if values else []
    return head_of([], shlex.join(command), settings)


def _questions(n: int) -> list[Question]:
    return [Question(i, "made up", (f"question {i}",)) for i in range(1, n + 1)]


def run(
    spec: str,
    arms: Sequence[Arm],
    n_predict: int,
    repetitions: int,
    json: Path | None = None,
    csv: Path | None = None,
    shown: Progress = lambda _done, _total, _name: None,
) -> None:
    """One text at a time. Raises DuoError.

    Ctrl-C ends the run early: it reports what was measured and raises KeyboardInterrupt.
    """
    progress = Counted(shown)
    head = _head(spec, arms, n_predict, repetitions)
    writer = SyntheticWriter(parse(spec), n_predict)
    try:
        records = interleaved(writer, _questions(N_QUESTIONS), arms, repetitions, 1, progress)
    finally:
        writer.close()
    try:
        if json is not None:
            files.write_json(json, files.as_json(records, head, progress.notes, complete=progress.complete))
        if csv is not None:
            files.write_csv(csv, records)
    finally:  # last: who reads it may go before its end
        report.show(records, head, progress.notes)
    if not progress.complete:
        raise KeyboardInterrupt


def run_slots(
    spec: str,
    arms: Sequence[Arm],
    counts: Sequence[int],
    n_predict: int,
    repetitions: int,
    json: Path | None = None,
    shown: Progress = lambda _done, _total, _name: None,
) -> None:
    """Several texts at once. Raises as `run`."""
    progress = Counted(shown)
    head = _head(spec, arms, n_predict, repetitions, counts)

    @contextmanager
    def writer(n: int) -> Iterator[SyntheticWriter]:
        options = parse(spec)
        options.n_parallel = n
        synthetic_writer = SyntheticWriter(options, n_predict)
        try:
            yield synthetic_writer
        finally:
            synthetic_writer.close()

    questions = _questions(max(N_QUESTIONS_SLOTS, *counts))
    rounds = rounds_of(writer, questions, arms, counts, repetitions, 1, progress)
    try:
        if json is not None:
            figures = slot_figures.as_json(rounds, head, progress.notes, complete=progress.complete)
            files.write_json(json, figures)
    finally:  # last: who reads it may go before its end
        slot_report.show(rounds, head, progress.notes)
    if not progress.complete:
        raise KeyboardInterrupt
