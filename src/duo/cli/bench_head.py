"""What commands that write a report share: defaults, refused options, the command line, and the head of a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from duo.cli.options import ModelCommand, given_options
from duo.errors import BadValueError
from duo.options.tables import ENGINE_OPTIONS

if TYPE_CHECKING:
    from duo.model import Duo
    from duo.options.generate import GenerateOptions

# A run sets the mode and the draft length of each arm itself, and needs complete texts from prompts in no cache.
NOT_HERE = ("mode", "n_draft", "stop", "prompt_cache", "prompt_cache_all", "prompt_cache_ro", "cache_ram")
DEFAULTS = {"max_tokens": 128, "seed": 1}
OF_DRAFT = tuple(name for name in ENGINE_OPTIONS if name.endswith("_draft") or name == "draft_host")
_COMMAND_LINE = "duo.cli.bench_head"  # in click's meta


class ReportCommand(ModelCommand):
    """Keeps the command line as typed, for the report."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = [*args]
        rest = super().parse_args(ctx, args)
        if token := ctx.params.get("hf_token"):  # people publish reports
            typed = [a[: -len(token)] + "***" if a == token or _value(a) == token else a for a in typed]
        ctx.meta[_COMMAND_LINE] = shlex.join(["duo", str(self.name), *typed])
        return rest


def _value(arg: str) -> str:
    """Of --name=value."""
    return arg.partition("=")[2] if arg.startswith("-") else ""


def command_line() -> str:
    """The command line of the ReportCommand that runs, as typed, without its token."""
    return str(click.get_current_context().meta[_COMMAND_LINE])


def head_of_run(d: Duo, params: dict[str, Any], text: GenerateOptions, n_questions: int) -> dict[str, Any]:
    """The head of the report of a run with this Duo."""
    from duo.benchmark.bench.head import head_of

    settings = {
        "questions": n_questions,
        "repetitions": params["repetitions"],
        "warm_up": params["warm_up"],
        **{k: v for k, v in text.items() if k not in (*NOT_HERE, "logprobs")},
        **{k: v for k, v in d.options.items() if v != ENGINE_OPTIONS[k].default},
    }
    loaded = [m for m in (d.target, d.draft) if m is not None]
    return head_of(loaded, command_line(), settings)


def options_of_target(params: dict[str, Any]) -> dict[str, Any]:
    """The given options of `Duo` that a target without a draft has."""
    return {k: v for k, v in given_options(params, ENGINE_OPTIONS).items() if k not in ("spec_type", *OF_DRAFT)}


def refuse(params: dict[str, Any], names: Iterable[str], with_what: str) -> None:
    """Raises BadValueError: one of these options was given on the command line."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            flag = next(p.opts[-1] for p in context.command.params if p.name == name)
            raise BadValueError(f"{flag} has no effect with {with_what}; leave it out")
