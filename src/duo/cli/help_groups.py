"""The help of a command that has more options than fit on a screen: the common ones, and the others in groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import click

from duo.options.cache import CacheOptions
from duo.options.cheap_draft import CheapDraftOptions
from duo.options.client import ClientOptions
from duo.options.context import ContextOptions, OffloadOptions
from duo.options.endpoint import EndpointOptions
from duo.options.engine import KernelOptions
from duo.options.experts import ExpertOptions
from duo.options.generate import GenerateOptions
from duo.options.lookup import LookupOptions
from duo.options.pictures import PictureOptions, SeenOptions
from duo.options.place import PlaceOptions
from duo.options.sampling import SamplingOptions
from duo.options.serve import ServeOptions
from duo.options.speculation import SpeculationOptions
from duo.options.spelling import SpellingOptions
from duo.options.threads import ThreadOptions
from duo.options.weights import WeightOptions

HELP_ALL = "--help-all"
MODELS = ("model", "model_draft", "pair", "hf_repo", "hf_repo_draft")
# Options that the short help of a run shows.
COMMON = (
    "n_ctx", "n_gpu_layers", "n_gpu_layers_draft", "device", "device_draft", "n_threads", "n_draft", "spec_type",
    "max_tokens", "temperature", "seed", "verbose",
)  # fmt: skip

_OWN = "Options of this command"
_MODELS = "Models"
_LOGS = "Logs and the process"
# In the order of the help. An option that no table has belongs to the command itself.
TABLES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("Server", (ServeOptions,)),
    ("Servers that are measured", (EndpointOptions,)),
    ("Sampling, length and grammar", (SamplingOptions,)),
    ("Speculation", (SpeculationOptions, CheapDraftOptions, LookupOptions)),
    ("Prompts, caches and thoughts", (GenerateOptions, SpellingOptions)),  # what its bases above do not have
    ("Pictures", (PictureOptions, SeenOptions)),
    ("Devices", (PlaceOptions, ExpertOptions, OffloadOptions)),
    ("Context and batches", (CacheOptions,)),
    ("CPU", (ThreadOptions,)),
    ("Weights and kernels", (KernelOptions, WeightOptions)),
    ("Changes to the target", (ContextOptions,)),
    ("Other machines", (ClientOptions,)),
)
_GROUP_OF = {
    **dict.fromkeys((*MODELS, "docker_repo", "hf_file", "hf_file_draft", "hf_token", "offline"), _MODELS),
    **dict.fromkeys(("verbose", "log_file", "log_prefix", "log_timestamps", "log_jsonl", "prio", "poll"), _LOGS),
}
for _title, _tables in TABLES:
    for _name in (name for table in _tables for name in table.__annotations__):
        _GROUP_OF.setdefault(_name, _title)
# Spellings of other options.
_GROUP_OF |= dict.fromkeys(("mmap", "mlock"), _GROUP_OF["load_mode"])
_GROUP_OF |= {f"{name}_file": _GROUP_OF[name] for name in ("grammar", "json_schema")}
TITLES = (_OWN, _MODELS, *(title for title, _ in TABLES), _LOGS)


def groups_of(params: Iterable[click.Parameter]) -> dict[str, list[click.Parameter]]:
    """The options by the title of their group, in the order of the help."""
    by_title: dict[str, list[click.Parameter]] = {title: [] for title in TITLES}
    for p in params:
        by_title[_GROUP_OF.get(p.name or "", _OWN)].append(p)
    return {title: members for title, members in by_title.items() if members}


def help_all() -> click.Option:
    """--help-all."""

    def show(ctx: click.Context, _option: click.Parameter, is_set: bool) -> None:
        if is_set and not ctx.resilient_parsing:
            ctx.meta[HELP_ALL] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["help_all", HELP_ALL], is_flag=True, is_eager=True, expose_value=False, callback=show,
        help="Show this help with all options and exit.",
    )  # fmt: skip


def write_options(
    ctx: click.Context, formatter: click.HelpFormatter, params: Collection[click.Parameter], common: Collection[str]
) -> None:
    """Writes the common options in their order, and the others in groups if --help-all asks for them.

    params: with those of the help, which stand at the end of the common ones.
    """
    shown = {p.name: p for p in params if p.get_help_record(ctx) is not None}
    of_help = [p for p in shown.values() if {"--help", HELP_ALL} & {*p.opts}]
    first = [shown[name] for name in common] + of_help
    _section(ctx, formatter, "Common options", first)
    rest = [p for p in shown.values() if p not in first]
    if not ctx.meta.get(HELP_ALL):
        formatter.write_paragraph()
        formatter.write_text(f"{len(rest)} more options: {ctx.command_path} {HELP_ALL}")
        return
    for title, members in groups_of(rest).items():
        _section(ctx, formatter, title, members)


def _section(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, members: Iterable[click.Parameter]
) -> None:
    records = (p.get_help_record(ctx) for p in members)
    with formatter.section(title):
        formatter.write_dl([r for r in records if r is not None])
