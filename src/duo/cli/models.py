"""Where a command's models come from: files, the hub, or a named pair."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from duo.cli import show
from duo.cli.complete import by_metavar, pair_names
from duo.cli.options import given
from duo.errors import DuoError
from duo.options.tables import ENGINE_OPTIONS
from duo.options.validate import engine_options

if TYPE_CHECKING:
    from duo.models.hub.repository import Hub

TARGET = {"model": "-m", "hf_repo": "-hf"}
DRAFT = {"model_draft": "-md", "hf_repo_draft": "-hfd"}
NAMES = (*TARGET, *DRAFT, "pair", "hf_file", "hf_file_draft", "hf_token", "offline")


class Models(NamedTuple):
    """Paths; None: not given."""

    target: str | None
    draft: str | None


def model_sources() -> list[click.Option]:
    """-m, -md, --pair, -hf and what belongs to them."""
    return [
        click.Option(["model", "-m", "--model"], type=str, metavar="FILE", envvar="LLAMA_ARG_MODEL",
                     shell_complete=by_metavar, help="The target: a GGUF file. Default: the demo pair."),
        click.Option(["model_draft", "-md", "--model-draft", "--draft-model", "--spec-draft-model"], type=str,
                     metavar="FILE", envvar="LLAMA_ARG_SPEC_DRAFT_MODEL", shell_complete=by_metavar,
                     help="The draft: a GGUF file."),
        click.Option(["pair", "--pair"], metavar="NAME", shell_complete=pair_names,
                     help="Target and draft by the name of their pair (see duo pairs); downloaded the first time."),
        click.Option(["hf_repo", "-hf", "-hfr", "--hf-repo"], metavar="USER/REPO[:QUANT]",
                     envvar="LLAMA_ARG_HF_REPO",
                     help="The target from the Hugging Face Hub. Default quantisation: Q4_K_M, else Q8_0, else any."),
        click.Option(["hf_repo_draft", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"],
                     metavar="USER/REPO[:QUANT]", envvar="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
                     help="The draft from the Hugging Face Hub."),
        click.Option(["hf_file", "-hff", "--hf-file"], metavar="FILE", envvar="LLAMA_ARG_HF_FILE",
                     help="Which file of -hf's repository."),
        click.Option(["hf_file_draft", "-hffd", "--hf-file-draft"], metavar="FILE",
                     help="Which file of -hfd's repository."),
        click.Option(["hf_token", "-hft", "--hf-token"], metavar="TOKEN",
                     help="For gated and private repositories; on a command line others can see it, so prefer "
                          "HF_TOKEN."),
        click.Option(["offline", "--offline"], is_flag=True, envvar="LLAMA_ARG_OFFLINE",
                     help="No network: models from the hub's cache only."),
    ]  # fmt: skip


def _typed(name: str) -> bool:
    """On the command line: stronger than the environment."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _one_of(params: dict[str, Any], names: dict[str, str]) -> str | None:
    """Which of these options names the model."""
    given = [n for n in names if params.get(n) is not None]
    typed = [n for n in given if _typed(n)]
    if len(typed or given) > 1:
        flags = [names[n] for n in typed or given]
        raise DuoError(f"{' and '.join(flags)} both name the same model; choose one")
    return next(iter(typed or given), None)


def names_target(params: dict[str, Any]) -> bool:
    return any(params[n] is not None for n in (*TARGET, "pair"))


def names_draft(params: dict[str, Any]) -> bool:
    return any(params[n] is not None for n in (*DRAFT, "pair"))


def chosen_models(params: dict[str, Any]) -> Models:
    """What the options name, downloaded if need be. Raises DuoError."""
    both = {"pair": "--pair"}
    target = _one_of(params, TARGET | both)
    draft = _one_of(params, DRAFT | both)
    if params.get("pair") is not None and "pair" not in (target, draft):  # from the environment, and overruled
        both = {}
    if (target == "pair") != (draft == "pair") and both:
        other = TARGET.get(target or "", DRAFT.get(draft or "", ""))
        raise DuoError(f"--pair names both models and {other} was given too; choose one")
    for file, repo, flag, needed in (
        ("hf_file", target, "--hf-file", "-hf"),
        ("hf_file_draft", draft, "--hf-file-draft", "-hfd"),
    ):
        if params.get(file) is not None and repo not in ("hf_repo", "hf_repo_draft") and _typed(file):
            raise DuoError(f"{flag} is a file in a repository and none was given; give it with {needed}")
    return _found(params, target, draft)


def hub_of(params: dict[str, Any]) -> Hub:
    """The hub as --hf-token and --offline and, where they are not given, the environment say. Raises DuoError."""
    # Only now: without the hub a run need not wait for its client to be imported.
    from duo.models.hub.repository import Hub

    hub = Hub(note=show.warn)
    return replace(hub, token=params["hf_token"] or hub.token, offline=hub.offline or params["offline"])


def _found(params: dict[str, Any], target: str | None, draft: str | None) -> Models:
    if not {target, draft} & {"pair", "hf_repo", "hf_repo_draft"}:
        return Models(params["model"] if target else None, params["model_draft"] if draft else None)
    engine_options(given(params, ENGINE_OPTIONS))  # a mistake is told before hours of downloading
    from duo.models import pairs
    from duo.models.hub.repository import parse

    hub = hub_of(params)
    if target == "pair":
        pairs.find(params["pair"], "--pair")
        return Models(*(str(p) for p in pairs.paths(params["pair"], hub.fetch)))
    of_target = parse(params["hf_repo"], params["hf_file"], "-hf") if target == "hf_repo" else None
    of_draft = parse(params["hf_repo_draft"], params["hf_file_draft"], "-hfd") if draft == "hf_repo_draft" else None
    return Models(
        str(hub.fetch(of_target)) if of_target else params["model"] if target else None,
        str(hub.fetch(of_draft)) if of_draft else params["model_draft"] if draft else None,
    )
