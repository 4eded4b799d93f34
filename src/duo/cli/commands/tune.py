"""`duo tune`: measures a pair on these devices and recommends options for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.cli.help_groups import MODELS
from duo.cli.models import DRAFT, NO_DRAFT, TARGET, model_sources, names_draft, names_target
from duo.cli.opening import open_duo, warn_of_models
from duo.cli.options import ModelCommand, given_options, model_options
from duo.cli.own_guesses import with_targets_own
from duo.cli.progress import progress
from duo.cli.run_options import of_run
from duo.errors import BadValueError
from duo.options.client import ClientOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS

if TYPE_CHECKING:
    from duo.benchmark.tuning import Tuning

HELP = """Measure a pair on these devices and recommend options for it.

duo measures the time of passes of the target over 1 to 17 tokens, which decides how much speculation pays, the time of
draft steps, and how often guesses are right. Then plain decoding, sync and async write the same texts. The figures are
saved for this pair in this placement, and later runs start with them. This takes a few hundred passes.

\b
Examples:
  duo tune
  duo tune -m 70B.gguf -md 8B.gguf -ngl 11 -ngld 99
  duo tune -m 70B.gguf -md 8B.gguf -f prompts.txt --temp 0 --json-file tuning.json
"""

# Both models must be in this process: there is no measuring of a pass or a step on another machine.
ELSEWHERE = ("draft_host", "verify_host", "rpc")
# No options of speculation: they are the result.
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dynatemp_range",
    "dynatemp_exponent",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "logit_bias",
    "ignore_eos",
    "seed",
)


def prompts_of(path: Path | None) -> list[str]:
    """The lines of a file without blank ones; without a path the built-in openings. Raises BadValueError."""
    from duo.benchmark.bench.questions import read
    from duo.benchmark.prompt_file import prompt_lines

    return [q.turns[0] for q in read()] if path is None else prompt_lines(path)


def recommended(t: Tuning, params: dict[str, Any], target: str) -> str:
    """The recommended command line: the models and options that were given, and the best way to speculate."""
    words = ["duo"]
    if not t.advice.with_draft:
        words += ["-m", params["model"] or target, "-md", NO_DRAFT]  # or what the target brings along would guess
    else:
        model_flags = {"pair": "--pair", **TARGET, **DRAFT, "hf_file": "--hf-file", "hf_file_draft": "--hf-file-draft"}
        for name, flag in model_flags.items():
            words += [flag, params[name]] if params.get(name) is not None else []
    for p in model_options():
        value = params.get(p.name or "")
        of_draft = (p.name or "").endswith("_draft") or p.name == "spec_type"
        if value in (None, ()) or (of_draft and not t.advice.with_draft):
            continue
        if isinstance(value, bool):
            words.append(p.opts[0] if value else p.secondary_opts[0])
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [p.opts[0], str(one)]
    return shlex.join([*words, *t.advice.flags])


def run(params: dict[str, Any]) -> None:
    from duo.benchmark.bench.files import check_writable, write_json
    from duo.benchmark.bench.head import head_of
    from duo.benchmark.tune import tune
    from duo.cli import tune_report
    from duo.options.validate import generate_options

    for name in ELSEWHERE:
        if params[name] is not None:
            flag = ENGINE_OPTIONS[name].flags[0]
            raise BadValueError(f"duo tune measures two models on this machine; leave out {flag}")
    check_writable(params["json"], "JSON")
    generate_options(given_options(params, GENERATE_OPTIONS))  # reports a bad value before a long download
    prompts = prompts_of(params["file"])
    params, chosen = with_targets_own(params)
    if names_target(params) and not names_draft(params) and params.get("spec_type") is None:
        raise BadValueError("duo tune measures a pair and no draft was given; give it with -md")
    with open_duo(params, models=chosen, **given_options(params, GENERATE_OPTIONS)) as d:
        show.note_placement(d.placement)
        warn_of_models(d)
        models = [m for m in (d.target, d.draft) if m is not None]
        with progress("text") as show_progress:
            t = tune(d, prompts, lambda what: show_progress(f"measuring {what}"))
        command = recommended(t, params, d.target.path)
        settings = {k: v for k, v in d.options.items() if v != ENGINE_OPTIONS[k].default}
        head = head_of(models, command, {**settings, **given_options(params, GENERATE_OPTIONS)})
    try:
        if params["json"] is not None:
            write_json(params["json"], {**head, **asdict(t)})
    finally:  # last: who reads it may go before its end
        tune_report.show(t, head)


def _options() -> Iterator[click.Option]:
    for o in model_options():
        if o.name in ELSEWHERE:
            o.hidden = True  # run() says why
        elif o.name in ClientOptions.__annotations__:
            continue
        if o.name in ENGINE_OPTIONS or o.name in SAMPLING:
            if o.name == "seed":
                o.help = "Seed; -1: a new one each time. [default: 1]"
            yield o


def _command() -> click.Command:
    path = click.Path(path_type=Path)
    own = [
        click.Option(["file", "-f", "--file"], type=path, metavar="FILE",
                     help="A file with one prompt per line; three of them are used. Default: openings that come with "
                          "duo."),
        click.Option(["json", "--json-file"], type=path, metavar="FILE", help="Write all figures as JSON."),
    ]  # fmt: skip
    return ModelCommand(
        "tune",
        params=[*model_sources(), *own, *_options(), *of_run("verbose", "log_file")],
        callback=lambda **params: run(params),
        help=HELP,
        common=(
            *MODELS, "file", "json", "n_ctx", "n_gpu_layers", "n_gpu_layers_draft", "device", "device_draft",
            "n_threads", "n_threads_draft", "cpu_range", "cpu_range_draft", "cpu_kernels", "flash_attn", "temperature",
            "verbose",
        ),
    )  # fmt: skip


command = _command()
