"""`duo bench --placements`: the same pair on one device, and on two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from duo.benchmark.bench import files, placed_report, placed_run
from duo.benchmark.bench.places import BenchPlacement, parse_places, placements_of
from duo.benchmark.bench.writer import DuoWriter
from duo.cli.bench_head import head_of_run, options_of_target, refuse
from duo.cli.models import Models, names_draft, names_target
from duo.cli.opening import open_duo, warn_of_models
from duo.cli.progress import Bar
from duo.errors import BadValueError, DuoError
from duo.models.demo import demo_pair
from duo.options.tables import ENGINE_OPTIONS

if TYPE_CHECKING:
    from duo.benchmark.bench.arms import Length
    from duo.benchmark.bench.questions import Question
    from duo.options.generate import GenerateOptions

# Set by each placement.
OF_PLACES = tuple(
    f"{name}{suffix}"
    for name in ("device", "n_threads", "cpu_mask", "cpu_range", "cpu_mask_batch", "cpu_range_batch")
    for suffix in ("", "_draft")
)


def measure(
    params: dict[str, Any],
    models: Models,
    sync_lengths: Sequence[Length],
    lengths: Sequence[Length],
    questions: Sequence[Question],
    text: GenerateOptions,
) -> None:
    """Measures, prints, and writes files. Raises DuoError; exit code 130 if Ctrl-C ended the run early."""
    refuse(params, ("modes", "slots", "csv", "chart", "alone", "raw"), "--placements, which has its own report")
    refuse(params, [n for n in OF_PLACES if n in ENGINE_OPTIONS], "--placements, which places both models")
    placements = placements_of(*parse_places(params["placements"]), sync_lengths, lengths)
    if names_target(params) and not names_draft(params):
        raise BadValueError("--placements needs a draft; give it with -md")
    head: dict[str, Any] = {}
    notes: dict[str, None] = {}
    bar = Bar()

    @contextmanager
    def writer(p: BenchPlacement) -> Iterator[DuoWriter]:
        with _open(params, models, p) as d:
            if p.has_draft and "draft" not in head:
                warn_of_models(d)
                head.update(head_of_run(d, params, text, len(questions)))
                for name in OF_PLACES:
                    head["settings"].pop(name, None)
            duo_writer = DuoWriter(d, text)
            yield duo_writer
            notes.update(duo_writer.notes)

    with bar.shown():
        results = placed_run.run(writer, questions, placements, params["repetitions"], params["warm_up"], bar)
    if not results[0].records:
        raise DuoError(f"{placements[0].name} failed, and the others are compared with it: {results[0].failure}")
    if not bar.complete:
        notes[f"ended early: {bar.done} of {bar.total} answers were written, including warm-up"] = None
    try:
        if params["json"] is not None:
            files.write_json(params["json"], placed_run.as_json(results, head, list(notes), bar.complete))
    finally:  # last: who reads it may go before its end
        placed_report.show(results, head, notes)
    if not bar.complete:
        raise click.exceptions.Exit(130)


@contextmanager
def _open(params: dict[str, Any], models: Models, p: BenchPlacement) -> Iterator[Any]:
    if p.has_draft:
        with open_duo(params, models=models, **p.options) as d:
            yield d
        return
    from duo.model import Duo

    with Duo(models.target or demo_pair()[0], mode="plain", **{**options_of_target(params), **p.options}) as d:
        yield d
