"""`duo bench`: compares plain, sync and async decoding."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.cli.bench_head import DEFAULTS, NOT_HERE, ReportCommand, head_of_run, options_of_target, refuse
from duo.cli.help_groups import MODELS
from duo.cli.models import NAMES, Models, model_sources, names_draft, names_target
from duo.cli.opening import open_duo, warn_of_models
from duo.cli.options import given_options, model_options, table_options
from duo.cli.own_guesses import with_targets_own
from duo.cli.progress import Bar
from duo.cli.run_options import of_run
from duo.errors import BadValueError, ContextFullError, DuoError
from duo.options.endpoint import EndpointOptions
from duo.options.generate import GenerateOptions
from duo.options.option import Mode
from duo.options.tables import ENDPOINT_OPTIONS, ENGINE_OPTIONS, GENERATE_OPTIONS

if TYPE_CHECKING:
    from duo.benchmark.bench.arms import Arm
    from duo.benchmark.bench.questions import Question
    from duo.benchmark.bench.record import AnswerRecord

HELP = """Measure plain, sync and async decoding of the same questions, interleaved in one run.

An arm is a mode with a draft length. All arms use the same loaded models, except "plain alone": this is the target
without a draft, loaded after the pair. Every arm answers a question before the next question starts, in rotating order,
so that noise affects all arms equally. Plain always runs, because the others are compared with it. Sync runs with each
of --sync-lengths, and async is compared with the fastest of them. Prompts are used without a chat template. The last
line can be quoted: "1.80x plain, 1.02x the best turn-taking, 0 of 16 texts differ, 2 cores".

--url measures servers instead: tokens/s of all texts together, time to the first token and per later token, goodput,
refused requests. A duo server writes in plain mode and in its own, or in --modes, and its texts are compared with
plain's. Texts are greedy unless you give --temp. duo sends only the options of texts that you give.

\b
Examples:
  duo bench
  duo bench -m 70B.gguf -md 8B.gguf -f question.jsonl --questions 20 --temp 0 --chart speed.svg
  duo bench -m 70B.gguf -md 8B.gguf --slots 1,2,4 --ignore-eos --temp 0
  duo bench -m 70B.gguf -md 8B.gguf --placements CUDA0,CUDA1
  duo bench --url http://127.0.0.1:8080 --url other=http://127.0.0.1:8000 -f question.jsonl --slots 1,2,4,8
  duo bench -m 70B.gguf -md 8B.gguf -ngl 11 --modes plain,async --lengths auto,4,8 --json-file run.json --csv run.csv
"""


def bench(params: dict[str, Any]) -> None:
    """Raises DuoError. Exit code 130 if Ctrl-C ended the run early, 1 if "plain alone" failed after the pair; both
    report what was measured."""
    from duo.benchmark.bench import arms as a
    from duo.benchmark.bench import chart, files, questions

    if params["url"]:
        from duo.cli import bench_servers

        return bench_servers.measure(params)
    refuse(params, ENDPOINT_OPTIONS, "models that are loaded here; name a server with --url")
    modes = a.parse_modes(params["modes"])
    counts = None if params["slots"] is None else a.parse_slots(params["slots"])
    if counts is not None:
        refuse(params, ("csv", "chart", "alone"), "--slots, which has its own report")
        if params["n_parallel"] is not None:
            raise BadValueError("-np/--parallel has no effect with --slots, which says how many texts; leave it out")
    lengths_text = params["sync_lengths"]
    if lengths_text is None:
        lengths_text = "1,2,3,4,5,7" if counts is None and params["placements"] is None else "2,4"
    sync_lengths = a.parse_lengths(lengths_text, "--sync-lengths", auto=False)
    lengths = a.parse_lengths(params["lengths"], "--lengths", auto=True)
    for name, what in (("json", "JSON"), ("csv", "CSV"), ("chart", "chart")):
        files.check_writable(params[name], what)
    chart.check_chart(params["chart"])
    if params["raw"] and params["json"] is None:
        raise BadValueError("--raw adds the records to a JSON file; name the file with --json-file")
    if params["synthetic"] is not None:
        n_predict = _checked(_text_options(params), a.PLAIN)["max_tokens"]
        _synthetic(params["synthetic"], a.arms_of(modes, sync_lengths, lengths), counts, n_predict, params)
        return
    text_options = _text_options(params)
    _checked(text_options, a.PLAIN)  # reports a bad value before a long download
    params, models = with_targets_own(params)
    modes = _modes_without_draft(params, modes)
    arms = a.arms_of(modes, sync_lengths, lengths)
    for arm in arms:
        checked = _checked(text_options, arm)
    if checked["seed"] == -1:
        checked["seed"] = secrets.randbits(63)  # the same for all arms, because their texts are compared
    chosen = questions.choose(questions.read(params["questions_file"]), params["questions"], params["category"])
    if params["placements"] is not None:
        from duo.cli import bench_placements

        return bench_placements.measure(params, models, sync_lengths, lengths, chosen, checked)
    if counts is not None:
        from duo.cli.bench_slots import measure

        measure(params, models, arms, counts, chosen, checked)
        return
    _measure(params, models, arms, chosen, checked)


def _text_options(params: dict[str, Any]) -> dict[str, Any]:
    return {**DEFAULTS, **given_options(params, GENERATE_OPTIONS)}


def _checked(options: dict[str, Any], arm: Arm) -> GenerateOptions:
    from duo.options.validate import generate_options

    return generate_options({**options, "mode": arm.mode, "n_draft": arm.n_draft or "auto"})


def _modes_without_draft(params: dict[str, Any], modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Without a draft only plain decoding is possible. Raises BadValueError: the user asked for other modes by name."""
    drafted = not names_target(params) or names_draft(params)
    sources = params.get("spec_type") or ""
    if drafted or modes == ("plain",) or "ngram-" in sources or "draft-mtp" in sources:
        return modes
    source = click.get_current_context().get_parameter_source("modes")
    if source is not click.core.ParameterSource.DEFAULT:
        raise BadValueError(f"--modes {','.join(modes)} needs a draft; give it with -md")
    show.warn("plain decoding only: no draft was given (-md)")
    return ("plain",)


def _synthetic(
    spec: str, arms: list[Arm], counts: Sequence[int] | None, n_predict: int, params: dict[str, Any]
) -> None:
    own = "--synthetic, which has its own models and questions"
    refuse(params, (*NAMES, "questions_file", "questions", "category", "warm_up", "chart", "raw"), own)
    ignored = {**given_options(params, ENGINE_OPTIONS), **given_options(params, GENERATE_OPTIONS)}
    ignored.pop("max_tokens", None)
    for name in ignored:
        flag = (ENGINE_OPTIONS.get(name) or GENERATE_OPTIONS[name]).flags[-1].split("/")[0]
        raise BadValueError(f"{flag} has no effect with {own}; leave it out")
    from duo.benchmark.bench.synthetic_run import run, run_slots

    bar = Bar()
    with bar.shown():
        if counts is None:
            run(spec, arms, n_predict, params["repetitions"], params["json"], params["csv"], bar)
        else:
            run_slots(spec, arms, counts, n_predict, params["repetitions"], params["json"], bar)


def _measure(
    params: dict[str, Any], models: Models, arms: list[Arm], chosen: list[Question], text: GenerateOptions
) -> None:
    from duo.benchmark.bench import chart, files, measures, report
    from duo.benchmark.bench.run import interleaved
    from duo.benchmark.bench.writer import DuoWriter

    with open_duo(params, models=models) as d:
        show.note_placement(d.placement)
        warn_of_models(d)
        head = head_of_run(d, params, text, len(chosen))
        writer, bar = DuoWriter(d, text), Bar()
        with bar.shown():
            records = interleaved(writer, chosen, arms, params["repetitions"], params["warm_up"], bar)
        target = d.target.path if params["alone"] and d.draft is not None and bar.complete else None
    notes, code = list(writer.notes), 0 if bar.complete else 130
    if not bar.complete:
        notes.append(f"ended early: {bar.done} of {bar.total} answers were written, including warm-up")
    if target is not None and records:
        code = _alone(params, target, chosen, text, records, notes)
    if not records:
        raise ContextFullError("no question fits the context together with its answer; raise -c or lower -n")
    try:
        if params["json"] is not None:
            figures = files.as_json(records, head, notes, raw=params["raw"], complete=code == 0)
            files.write_json(params["json"], figures)
        if params["csv"] is not None:
            files.write_csv(params["csv"], records)
        if params["chart"] is not None:
            summaries, sync = measures.summarise(records), measures.best_sync(records)
            title = " + ".join(head[name]["file"] for name in ("target", "draft") if name in head)
            chart.draw(summaries, sync, params["chart"], title)
    finally:  # last: who reads it may go before its end
        report.show(records, head, notes)
    if code != 0:
        raise click.exceptions.Exit(code)


def _alone(
    params: dict[str, Any],
    target: str,
    chosen: list[Question],
    text: GenerateOptions,
    records: list[AnswerRecord],
    notes: list[str],
) -> int:
    """Lets the target alone answer the same questions, loaded after the pair in the way of a user without a draft.

    Adds to the pair's records and notes, which stay even if this ends early. Returns the exit code.
    """
    from duo.benchmark.bench.arms import ALONE
    from duo.benchmark.bench.run import interleaved
    from duo.benchmark.bench.writer import DuoWriter
    from duo.model import Duo

    bar, code = Bar(), 0
    try:
        with Duo(target, mode="plain", **options_of_target(params)) as d:
            writer = DuoWriter(d, text)
            with bar.shown():
                records += interleaved(writer, chosen, [ALONE], params["repetitions"], params["warm_up"], bar)
            notes += [note for note in writer.notes if note not in notes]
        code = 0 if bar.complete else 130
    except KeyboardInterrupt:
        code = 130
    except DuoError as e:
        notes.append(f"{ALONE.name} failed: {e}")
        code = 1
    if code == 130:
        done = f"{bar.done} of {bar.total} answers were written, including warm-up" if bar.total else "while loading"
        notes.append(f"ended early: {ALONE.name}, {done}")
    return code


def _command() -> click.Command:
    path = click.Path(path_type=Path)
    counts = click.IntRange(min=1)
    first = [
        click.Option(["questions_file", "-f", "--questions-file"], type=path, metavar="FILE",
                     help="Questions in Spec-Bench's format: one JSON object per line with question_id, category, "
                          "turns. Default: eight openings that come with duo."),
        click.Option(["questions", "--questions"], type=counts, metavar="N",
                     help="Use N of the questions, spread evenly over the file. Default: all."),
        click.Option(["category", "--category"], multiple=True, metavar="NAME",
                     help="Use only questions of this category. May be repeated."),
        click.Option(["modes", "--modes"], default="plain,sync,async", metavar="MODE,MODE",
                     help="Modes to measure, always including plain. [default: plain,sync,async]"),
        click.Option(["sync_lengths", "--sync-lengths"], metavar="N,N",
                     help="Draft lengths of sync. Async is compared with the fastest one. [default: 1,2,3,4,5,7; with "
                          "--slots or --placements 2,4]"),
        click.Option(["lengths", "--lengths"], default="auto", metavar="N|auto,...",
                     help="Draft lengths of async. [default: auto]"),
        click.Option(["slots", "--slots"], metavar="N,N",
                     help="Write so many texts at once, with one pass for all, as 1,2,4,8; 1 always runs. Reports "
                          "tokens/s of all texts together."),
        click.Option(["placements", "--placements"], metavar="auto|A,B",
                     help="Compare the target alone, both models on one device, and the target at A with the draft at "
                          "B: CUDA0,CPU or, for CPUs, 0-3,4-7. auto: two GPUs, or a GPU and the CPU, or two halves of "
                          "the CPUs."),
        click.Option(["alone", "--alone/--no-alone"], default=True,
                     help="Also measure the target with no draft loaded, after the pair. [default: on]"),
        click.Option(["repetitions", "--repetitions"], type=counts, default=2, metavar="N",
                     help="How often each question is asked. [default: 2]"),
        click.Option(["warm_up", "--warm-up"], type=click.IntRange(min=0), default=1, metavar="N",
                     help="Questions that each arm answers first without being measured. [default: 1]"),
        click.Option(["json", "--json-file"], type=path, metavar="FILE", help="Write all figures as JSON."),
        click.Option(["raw", "--raw"], is_flag=True, help="Add the figures of every single answer to the JSON."),
        click.Option(["csv", "--csv"], type=path, metavar="FILE", help="Write a CSV row for each arm and category."),
        click.Option(["chart", "--chart"], type=path, metavar="FILE",
                     help="Draw speed-ups by category as this .svg or .png file."),
        click.Option(["synthetic", "--synthetic"], metavar="SPEC",
                     help="Use simulated models with the given speeds and agreement, as a=0.8,c=0.2."),
    ]  # fmt: skip
    return ReportCommand(
        "bench",
        params=[
            *model_sources(),
            *first,
            *table_options(EndpointOptions, ENDPOINT_OPTIONS),
            *model_options(NOT_HERE, DEFAULTS),
            *of_run("verbose", "log_file"),
        ],
        callback=lambda **params: bench(params),
        help=HELP,
        common=(
            *MODELS, "questions_file", "questions", "modes", "slots", "placements", "url", "json", "n_ctx",
            "n_gpu_layers", "n_gpu_layers_draft", "device", "device_draft", "n_threads", "max_tokens", "temperature",
        ),
    )  # fmt: skip


command = _command()
