"""`duo train-head` and `duo train-draft`: the target teaches a head or a small model that drafts for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from duo.cli import show
from duo.cli.complete import by_metavar
from duo.cli.finite import Finite
from duo.cli.options import ModelCommand, given_options, table_options
from duo.cli.progress import progress
from duo.errors import BadValueError
from duo.options.engine import EngineOptions
from duo.options.tables import ENGINE_OPTIONS, TRAIN_DRAFT_OPTIONS, TRAIN_HEAD_OPTIONS
from duo.options.train import OF_TARGET, DraftOptions, HeadOptions
from duo.support.ending import ended_as_by_ctrl_c

HEAD = """Train an EAGLE-3 draft head for a target.

The target writes and reads texts of the data; its hidden states and most probable tokens go to a folder on disk.
PyTorch trains the head on them (pip install 'duo-llama[train]'). To continue a run that was stopped, run the same
command again. docs/training.md has memory and time for large targets, and --plan computes them for yours.

\b
Examples:
  duo train-head -m 70B.gguf --data chats.jsonl -o head.gguf --plan
  duo train-head -m 70B.gguf -ngl 99 --data chats.jsonl --tokens 10000000 -o head.gguf
"""
DRAFT = """Train a small draft model for a target.

The draft (a llama) learns the target's distribution: from nothing, or with --from from an existing draft of the
target's family, which is best for a fine-tuned target. The target writes and reads texts of the data, and its most
probable tokens go to a folder on disk. PyTorch trains the draft on them (pip install 'duo-llama[train]'). To continue a
run that was stopped, run the same command again.

\b
Examples:
  duo train-draft -m 70B.gguf --data chats.jsonl -o draft.gguf --plan
  duo train-draft -m tuned-70B.gguf --from 1B.gguf --data chats.jsonl --lr 2e-5 -o draft.gguf
"""


def run(kind: str, params: dict[str, Any]) -> None:
    """Plans or trains. Raises DuoError."""
    from duo.options.validate import engine_options, train_draft_options, train_head_options

    head = kind == "head"
    table = TRAIN_HEAD_OPTIONS if head else TRAIN_DRAFT_OPTIONS
    options: Any = (train_head_options if head else train_draft_options)(given_options(params, table))
    engine = {name: value for name, value in given_options(params, ENGINE_OPTIONS).items() if name in OF_TARGET}
    engine_options(engine)
    if params["like"] is not None and not params["plan"]:
        raise BadValueError("--like is for --plan; name the target's file with -m")
    if params["plan"]:
        _plan(params, options, head=head)
        return
    for name, flag in (("model", "-m"), ("output", "-o"), ("data", "--data")):
        if not params[name]:
            raise BadValueError(f"{flag} is missing; duo train-{kind} needs -m, --data and -o")
    from duo.train.course import TrainingRequest
    from duo.train.draft import train_draft
    from duo.train.head import train_head

    with ended_as_by_ctrl_c(), progress("share") as bar:
        request = TrainingRequest(
            params["model"], params["data"], params["output"], options, engine, say=show.warn, progress=bar
        )
        done = (train_head if head else train_draft)(request)
    acceptance = done.card["acceptance"]
    click.echo(
        f"{done.path}: {done.n_bytes / 1e6:.1f} MB, {acceptance['tokens_per_pass']} tokens a pass on held-out texts"
    )


def _plan(params: dict[str, Any], options: Any, *, head: bool) -> None:
    from duo.train.plan import DeviceSpeed, measured, plan_of
    from duo.train.sizes import LIKE, TargetShape
    from duo.train.target_file import ModelFile

    if (params["model"] is None) == (params["like"] is None):
        raise BadValueError("--plan is for one target; give its file with -m, or a size with --like")
    if (params["tflops"] is None) != (params["bandwidth"] is None):
        raise BadValueError("--tflops and --bandwidth belong together; give both, or none to measure this machine")
    if params["tflops"] is None:
        speed = measured(options["train_device"], options["precision"])
    else:
        speed = DeviceSpeed(params["tflops"] * 1e12, params["bandwidth"] * 1e9)
    target = LIKE[params["like"]] if params["like"] else TargetShape.of(ModelFile(params["model"]))
    plan = plan_of(target, options, head=head, speed=speed)
    if params["json"]:
        click.echo(json.dumps(plan.as_json(), indent=2))
    else:
        click.echo("\n".join(plan.lines()))


def _command(kind: str) -> click.Command:
    path = click.Path(path_type=Path)
    positive = Finite(min=0, min_open=True)
    table, options = (HeadOptions, TRAIN_HEAD_OPTIONS) if kind == "head" else (DraftOptions, TRAIN_DRAFT_OPTIONS)
    own = [
        click.Option(["model", "-m", "--model"], type=path, metavar="FILE", envvar="LLAMA_ARG_MODEL",
                     shell_complete=by_metavar, help="The target: a GGUF file."),
        click.Option(["data", "--data"], type=path, metavar="FILE", multiple=True, shell_complete=by_metavar,
                     help="Texts, prompts or conversations (.txt, .json, .jsonl, .xz, .gz). May be repeated."),
        click.Option(["output", "-o", "--output"], type=path, metavar="OUT.gguf", shell_complete=by_metavar,
                     help="The file to write."),
        click.Option(["plan", "--plan"], is_flag=True, help="Only say how much disk, memory and time it takes."),
        click.Option(["like", "--like"], type=click.Choice(["8b", "70b"]),
                     help="With --plan: a target like Llama 3.1 of this size, instead of -m."),
        click.Option(["tflops", "--tflops"], type=positive, metavar="F",
                     help="With --plan: speed of the device's products. Default: measured here."),
        click.Option(["bandwidth", "--bandwidth"], type=positive, metavar="GB",
                     help="With --plan: the device's memory, in GB per second. Default: measured here."),
        click.Option(["json", "--json"], is_flag=True, help="With --plan: as JSON."),
    ]  # fmt: skip
    placing = {name: ENGINE_OPTIONS[name] for name in OF_TARGET}
    return ModelCommand(
        f"train-{kind}",
        params=[*own, *table_options(table, options), *table_options(EngineOptions, placing)],
        callback=lambda **params: run(kind, params),
        help=HEAD if kind == "head" else DRAFT,
    )


train_head = _command("head")
train_draft = _command("draft")
