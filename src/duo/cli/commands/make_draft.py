"""`duo make-draft`: a draft from the target's own file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from duo.cli import show
from duo.cli.commands.tune import prompts_of
from duo.cli.complete import by_metavar
from duo.cli.finite import Finite
from duo.cli.models import TARGET, chosen_models, model_sources
from duo.cli.options import ModelCommand, given_options, table_options
from duo.cli.progress import progress
from duo.errors import BadValueError, DuoError
from duo.options.engine import EngineOptions
from duo.options.tables import ENGINE_OPTIONS
from duo.support.ending import ended_as_by_ctrl_c

HELP = """Make a draft from the target's own file.

For a target without a small model of its family. duo makes drafts with fewer bits (--types), fewer layers and (for a
mixture) fewer experts, one at a time. For each one it measures on this machine how often its guesses are right and how
long a step takes, and computes the speed as `duo tune` does. The best one is raced against the target alone, and
written to DRAFT if it is faster. docs/make_draft.md says when to expect that.

\b
Examples:
  duo make-draft -m 70B.gguf -ngl 11 -ngld 99 -o draft.gguf
  duo make-draft -m 30B-A3B.gguf -ngl 99 -cmoe -ngld 99 --types q2_k -o draft.gguf
  duo make-draft -m 8B.gguf --types none --keep-layers 24 --minutes 30 -o draft.gguf
"""
HOSTS = ("draft_host", "verify_host", "rpc")  # both models have to be here
NOT_HERE = ("n_parallel", "embedding", "pooling_type")
KEEP_ALL = "all"
TYPES = ("q4_0", "q3_k", "q2_k")
N_TOKENS, MINUTES = 96, 10.0


def keep_layers(text: str) -> tuple[int | None, bool]:
    """The number of layers that stay (None: as many as pay), and whether any are left out. Raises BadValueError."""
    if text in ("auto", KEEP_ALL):
        return None, text == "auto"
    if not text.isdecimal() or int(text) < 1:
        raise BadValueError(f"--keep-layers {text!r} is no number of layers; give one, or auto, or all")
    return int(text), True


def run(params: dict[str, Any]) -> None:
    from duo.cli import made_draft
    from duo.make_draft.candidates import DraftSearch
    from duo.make_draft.make import DraftRequest, check_place, make_draft
    from duo.make_draft.recipe import parse_types
    from duo.options.validate import engine_options

    n_layers, tries_layers = keep_layers(params["keep_layers"])
    search = DraftSearch(parse_types(params["types"]), n_layers, tries_layers, params["minutes"])
    prompts = prompts_of(params["prompts"])
    engine = given_options(params, ENGINE_OPTIONS)
    engine_options(engine)  # reports a bad value before a long download
    if not any(params[name] is not None for name in TARGET):
        raise BadValueError("-m is missing; name the target from whose file a draft is to be made")
    if params["hf_repo"] is not None or params["docker_repo"] is not None or "://" in (params["model"] or ""):
        check_place(params["output"], force=params["force"])  # before a long download
    target = chosen_models({**params, "model_draft": None}).target
    assert target is not None
    with ended_as_by_ctrl_c(), progress("text") as bar:
        request = DraftRequest(
            target, params["output"], search, prompts, params["n_predict"], engine, params["force"], bar
        )
        outcome = make_draft(request)
    if params["json"]:
        click.echo(json.dumps(made_draft.as_json(outcome), indent=1))
    else:
        made_draft.show(outcome)
    _conclude(made_draft.verdict(outcome), outcome.written, pays=outcome.pays, when=made_draft.WHEN)


def _conclude(verdict: str, written: Path | None, *, pays: bool, when: str) -> None:
    """Raises DuoError: there is no draft."""
    if not pays:
        show.warn(when)
    if written is None:
        raise DuoError(f"{verdict}; nothing was written (--force writes the best one)")
    show.warn(f"{verdict}; written: {written}")


def _options() -> Iterator[click.Option]:
    path = click.Path(path_type=Path)
    for o in model_sources(heads=False):
        if o.name == "model":
            o.help = "The target: a GGUF file."
        if o.name in (*TARGET, "hf_file", "hf_token", "offline"):
            yield o
    yield from (
        click.Option(["output", "-o", "--output"], type=path, required=True, metavar="DRAFT",
                     shell_complete=by_metavar, help="The file to write."),
        click.Option(["types", "--types"], default=",".join(TYPES), metavar="TYPE,TYPE",
                     help="Types of the weights to try, as llama-quantize names them; none: the target's own. Types "
                          f"that need an importance matrix are left out. [default: {','.join(TYPES)}]"),
        click.Option(["keep_layers", "--keep-layers"], default="auto", metavar="N|auto|all",
                     help="Layers that the draft keeps. auto: as many as pay; all: all of them. [default: auto]"),
        click.Option(["n_predict", "-n", "--predict", "--n-predict"], type=click.IntRange(16, 4096), default=N_TOKENS,
                     metavar="N",
                     help=f"Tokens that the target writes to each of three prompts. [default: {N_TOKENS}]"),
        click.Option(["prompts", "--prompts"], type=path, metavar="FILE", shell_complete=by_metavar,
                     help="A file with one prompt per line; three of them are used. Default: openings that come with "
                          "duo."),
        click.Option(["minutes", "--minutes"], type=Finite(0, min_open=True), default=MINUTES, metavar="M",
                     help="After so many minutes nothing new is tried. The choice of layers takes most of them. "
                          f"[default: {MINUTES:g}]"),
        click.Option(["force", "--force"], is_flag=True,
                     help="Write the best draft even if it does not pay, and replace DRAFT if it exists."),
        click.Option(["json", "--json"], is_flag=True, help="All figures as JSON on standard output."),
    )  # fmt: skip
    table = {name: o for name, o in ENGINE_OPTIONS.items() if name not in (*HOSTS, *NOT_HERE)}
    yield from table_options(EngineOptions, table)


command = ModelCommand(
    "make-draft",
    params=list(_options()),
    callback=lambda **params: run(params),
    help=HELP,
)
