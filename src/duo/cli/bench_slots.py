"""`duo bench --slots`: several texts at once with loaded models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from duo.benchmark.bench import files, slot_figures, slot_report
from duo.benchmark.bench.slots import rounds_of
from duo.benchmark.bench.writer import DuoWriter
from duo.cli import show
from duo.cli.bench_head import head_of_run
from duo.cli.models import Models
from duo.cli.opening import open_duo, warn_of_models
from duo.cli.progress import Bar
from duo.errors import ContextFullError

if TYPE_CHECKING:
    from duo.benchmark.bench.arms import Arm
    from duo.benchmark.bench.questions import Question
    from duo.options.generate import GenerateOptions


def measure(
    params: dict[str, Any],
    models: Models,
    arms: Sequence[Arm],
    counts: Sequence[int],
    questions: Sequence[Question],
    text: GenerateOptions,
) -> None:
    """Measures, prints, and writes files. Raises DuoError; exit code 130 if Ctrl-C ended the run early."""
    head: dict[str, Any] = {}
    notes: dict[str, None] = {}
    bar = Bar()

    @contextmanager
    def writer(n: int) -> Iterator[DuoWriter]:
        with open_duo(params, models=models, n_parallel=n) as d:
            if not head:
                show.note_placement(d.placement)
                warn_of_models(d)
                head.update(head_of_run(d, params, text, len(questions)))
                head["settings"]["slots"] = ",".join(map(str, counts))
            longest = max(len(d.tokenize("".join(q.turns), special=True)) for q in questions) + max(
                1, text["max_tokens"]
            )
            if n * longest > d.target.n_ctx:
                notes[f"{n} texts do not all fit the context of {d.target.n_ctx} tokens (-c); some may wait"] = None
            duo_writer = DuoWriter(d, text)
            yield duo_writer
            notes.update(duo_writer.notes)

    with bar.shown():
        rounds = rounds_of(writer, questions, arms, counts, params["repetitions"], params["warm_up"], bar)
    if not any(r.records for r in rounds):
        raise ContextFullError("no question fits the context together with its answer; raise -c or lower -n")
    if not bar.complete:
        notes[f"ended early: {bar.done} of {bar.total} answers were written, including warm-up"] = None
    try:
        if params["json"] is not None:
            figures = slot_figures.as_json(rounds, head, notes, raw=params["raw"], complete=bar.complete)
            files.write_json(params["json"], figures)
    finally:  # last: who reads it may go before its end
        slot_report.show(rounds, head, notes)
    if not bar.complete:
        raise click.exceptions.Exit(130)
