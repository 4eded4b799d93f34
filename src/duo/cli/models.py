"""The models of a command: from files, from the hub, or a named pair."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from duo.cli import show
from duo.cli.complete import by_metavar, pair_names
from duo.cli.options import given_options
from duo.errors import BadValueError, DuoError, UnknownModelError
from duo.options.tables import ENGINE_OPTIONS

if TYPE_CHECKING:
    from duo.models.hub.repository import Hub

TARGET = {"model": "-m", "hf_repo": "-hf", "docker_repo": "-dr"}
DRAFT = {"model_draft": "-md", "hf_repo_draft": "-hfd"}
LISTINGS = "duo.hub.listings"  # key in click's context
NO_DRAFT, FOUND_DRAFT = "none", "auto"  # in place of a file; auto: as if -md was not given
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+(:[\w.-]+)?(?<!\.gguf)", re.ASCII)
NAMES = (*TARGET, *DRAFT, "pair", "hf_file", "hf_file_draft", "hf_token", "offline")


class Models(NamedTuple):
    """The paths of both models; None: not given."""

    target: str | None
    draft: str | None


def _left_to_duo(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    return None if value == FOUND_DRAFT else value


def model_sources(*, heads: bool = True) -> list[click.Option]:
    """-m, -md, --pair, -hf and related options. heads: the command has --spec-type, too."""
    of_target, of_draft = "", ""
    if heads:
        of_target = " --spec-type draft-mtp (or another head) without a draft takes this head from there too."
        of_draft = (
            ", or the one that --spec-type names. --spec-type draft-simple or -hffd FILE takes a model beside them"
        )
    return [
        click.Option(["model", "-m", "--model"], type=str, metavar="FILE", envvar="LLAMA_ARG_MODEL",
                     shell_complete=by_metavar,
                     help="The target: a GGUF file, or its URL, which is downloaded into duo's cache. Default: the "
                          "demo pair."),
        click.Option(["model_draft", "-md", "--model-draft", "--draft-model", "--spec-draft-model"], type=str,
                     metavar="FILE", envvar="LLAMA_ARG_SPEC_DRAFT_MODEL", shell_complete=by_metavar,
                     callback=_left_to_duo,
                     help="The draft: a GGUF file, or its URL. Default: the target's own MTP layers, a draft beside it "
                          "(mtp-*, eagle3-*, dflash-*, dspark-*, draft-*), or the draft that a list of pairs has for "
                          "it, if it is on this machine. duo run, chat and serve let n-grams guess, too, alone or "
                          "beside a draft model, where they cannot change the text. auto: the default; none: no "
                          "draft."),
        click.Option(["pair", "--pair"], metavar="NAME", shell_complete=pair_names,
                     help="Target and draft by the name of a pair (see duo pairs). The first use downloads them. -md "
                          "none leaves the draft out."),
        click.Option(["hf_repo", "-hf", "-hfr", "--hf-repo"], metavar="USER/REPO[:QUANT]",
                     envvar="LLAMA_ARG_HF_REPO",
                     help="The target from the Hugging Face Hub. Default quantisation: Q4_K_M, otherwise Q8_0, "
                          "otherwise any."
                          f"{of_target}"),
        click.Option(["hf_repo_draft", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"],
                     metavar="USER/REPO[:QUANT]", envvar="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
                     help="The draft from the Hugging Face Hub. If the repository has draft heads (with mtp-, dspark-, "
                          f"dflash- or eagle3- in their names), the first of these kinds is taken{of_draft}."),
        click.Option(["hf_file", "-hff", "--hf-file"], metavar="FILE", envvar="LLAMA_ARG_HF_FILE",
                     help="The file in the repository of -hf."),
        click.Option(["hf_file_draft", "-hffd", "--hf-file-draft"], metavar="FILE",
                     help="The file in the repository of -hfd."),
        click.Option(["docker_repo", "-dr", "--docker-repo"], metavar="[USER/]MODEL[:TAG]",
                     envvar="LLAMA_ARG_DOCKER_REPO",
                     help="The target from Docker Hub. Default user: ai; default tag: latest."),
        click.Option(["hf_token", "-hft", "--hf-token"], metavar="TOKEN",
                     help="Token for gated and private repositories. Other users can see a command line, so "
                          "HF_TOKEN is safer."),
        click.Option(["offline", "--offline"], is_flag=True, envvar="LLAMA_ARG_OFFLINE",
                     help="Use no network: take hub models only from the cache."),
    ]  # fmt: skip


def is_typed(name: str) -> bool:
    """Whether the option stands on the command line, which overrides the environment."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _one_of(params: dict[str, Any], names: dict[str, str]) -> str | None:
    """The option that names the model. Raises BadValueError: two do."""
    present = [n for n in names if params.get(n) is not None]
    typed = [n for n in present if is_typed(n)]
    if len(typed or present) > 1:
        flags = [names[n] for n in typed or present]
        raise BadValueError(f"{' and '.join(flags)} both name the same model; choose one")
    return next(iter(typed or present), None)


def source_of_target(params: dict[str, Any]) -> str | None:
    """The option that names the target. Raises BadValueError: two do."""
    return _one_of(params, TARGET | {"pair": "--pair"})


def names_target(params: dict[str, Any]) -> bool:
    return any(params.get(n) is not None for n in (*TARGET, "pair"))


def names_draft(params: dict[str, Any]) -> bool:
    of_pair = params["pair"] is not None and params["model_draft"] != NO_DRAFT
    return of_pair or any(params[n] not in (None, NO_DRAFT) for n in DRAFT)


def chosen_models(params: dict[str, Any]) -> Models:
    """The models that the options name, downloaded if necessary. Raises DuoError."""
    both = {"pair": "--pair"}
    target = source_of_target(params)
    if target == "pair" and params["model_draft"] == NO_DRAFT and params["hf_repo_draft"] is None:
        return _at_hand(params, _models_of(params, target, None))
    draft = _one_of(params, DRAFT | both)
    if params.get("pair") is not None and "pair" not in (target, draft):
        both = {}  # --pair came from the environment, and another option overrides it
    if (target == "pair") != (draft == "pair") and both:
        other = TARGET.get(target or "", DRAFT.get(draft or "", ""))
        raise BadValueError(f"--pair names both models and {other} was given too; choose one")
    for file, repo, flag, needed in (
        ("hf_file", target, "--hf-file", "-hf"),
        ("hf_file_draft", draft, "--hf-file-draft", "-hfd"),
    ):
        if params.get(file) is not None and repo not in ("hf_repo", "hf_repo_draft") and is_typed(file):
            raise BadValueError(
                f"{flag} names a file in a repository, but no repository was given; give it with {needed}"
            )
    if target == "model":
        _check_name(params, "model", "-m", "-hf")
    if draft == "model_draft" and params["model_draft"] != NO_DRAFT:
        _check_name(params, "model_draft", "-md", "-hfd")
    return _at_hand(params, _models_of(params, target, draft))


def _at_hand(params: dict[str, Any], models: Models) -> Models:
    """With files in place of URLs, downloaded if necessary. Raises DuoError."""
    if not any(x is not None and "://" in x for x in models):
        return models
    from duo.models.hub.url_file import fetch_url
    from duo.options.validate import engine_options

    engine_options(given_options(params, ENGINE_OPTIONS))  # reports a bad value before a long download
    hub = hub_of(params)
    return Models(*(str(fetch_url(hub, x)) if x is not None and "://" in x else x for x in models))


def _check_name(params: dict[str, Any], name: str, flag: str, hub_flag: str) -> None:
    """Raises UnknownModelError: there is no such file, but a pair has this name, or a repository may have it."""
    path = params[name]
    if "://" in path or os.path.exists(path):
        return
    from duo.models.pairs import entries

    try:
        is_pair = path in entries()
    except DuoError:
        is_pair = False  # the commands that need the user's list report its errors
    if is_pair:
        instead = f"give it as --pair {path}" if "pair" in params else f"give a file (duo pairs show {path} names both)"
        raise UnknownModelError(f"there is no file {path} ({flag}), but a pair has this name; {instead}")
    if _REPOSITORY.fullmatch(path):
        raise UnknownModelError(
            f"there is no file {path} ({flag}); check the path, or write {hub_flag} {path} for a repository of the hub"
        )


def _draft_file(params: dict[str, Any]) -> str | None:
    return None if params["model_draft"] == NO_DRAFT else str(params["model_draft"])


def _asked_head(params: dict[str, Any]) -> str | None:
    """The file beside the target of -m with a head of the kind that --spec-type names. Raises DuoError."""
    if params.get("model") is None or params.get("spec_type") is None or params.get("draft_host") is not None:
        return None
    from duo.models.beside import head_beside
    from duo.models.hub.head_files import kinds_of

    found = head_beside(params["model"], kinds_of(params["spec_type"]))
    if found is not None:
        show.warn(f"{Path(found).name} lies beside the target and is the head that --spec-type names")
    return found


def hub_of(params: dict[str, Any]) -> Hub:
    """The hub with --hf-token and --offline, or else the settings of the environment. A command lists each repository
    once. Raises DuoError."""
    # Imported here: runs without the hub do not need its client.
    from duo.models.hub.repository import Hub

    ctx = click.get_current_context(silent=True)  # None: in another thread
    hub = Hub(note=show.warn, listings=None if ctx is None else ctx.meta.setdefault(LISTINGS, {}))
    return replace(hub, token=params["hf_token"] or hub.token, offline=hub.offline or params["offline"])


def projector_of_hub(params: dict[str, Any], target: str | None) -> str | None:
    """The projector in the repository of -hf, from which this target is. None: there is none, or the user has chosen
    otherwise. Raises DuoError."""
    chosen = params.get("mmproj") is not None or params.get("mmproj_auto") is False or params.get("rpc")
    if target is None or params.get("hf_repo") is None or chosen:
        return None
    from duo.models.hub.head_files import PROJECTOR
    from duo.models.hub.repository import parse

    of_target = parse(params["hf_repo"], params["hf_file"], "-hf")
    file = hub_of(params).fetch_head(of_target, (PROJECTOR,))
    return None if file is None else str(file)


def projectors_at_urls(params: dict[str, Any]) -> dict[str, str]:
    """The files of --mmproj and --mmproj-draft that have URLs, downloaded, by keyword; without those of models
    elsewhere. Raises DuoError."""
    from duo.models.projector import is_url

    found = {}
    for name, host in (("mmproj", "verify_host"), ("mmproj_draft", "draft_host")):
        if is_url(params.get(name)) and params.get(host) is None:
            from duo.models.hub.url_file import fetch_url

            found[name] = str(fetch_url(hub_of(params), params[name]))
    return found


def _models_of(params: dict[str, Any], target: str | None, draft: str | None) -> Models:
    if not {target, draft} & {"pair", "hf_repo", "hf_repo_draft", "docker_repo"}:
        if target is None and params["model_draft"] == NO_DRAFT:
            from duo.models.demo import demo_pair

            return Models(str(demo_pair()[0]), None)
        return Models(params["model"] if target else None, _draft_file(params) if draft else _asked_head(params))
    from duo.models import pairs
    from duo.models.hub.head_files import kinds_of
    from duo.models.hub.repository import parse
    from duo.options.validate import engine_options

    engine_options(given_options(params, ENGINE_OPTIONS))  # reports a bad value before a long download
    hub = hub_of(params)
    if target == "pair":
        entry = pairs.find(params["pair"], "--pair")
        if draft is None:
            return Models(str(pairs.path_of(entry.pair.target, entry.folder, hub.fetch)), None)
        return Models(*(None if p is None else str(p) for p in pairs.paths(params["pair"], hub.fetch)))
    of_target = parse(params["hf_repo"], params["hf_file"], "-hf") if target == "hf_repo" else None
    of_draft = parse(params["hf_repo_draft"], params["hf_file_draft"], "-hfd") if draft == "hf_repo_draft" else None
    kinds = kinds_of(params.get("spec_type"))
    target_path = str(hub.fetch(of_target)) if of_target else params["model"] if target else None
    if target == "docker_repo":
        from duo.models.hub.docker import fetch_image

        target_path = str(fetch_image(hub, params["docker_repo"]))
    if of_draft is not None:  # its heads come first, as in llama.cpp (common/arg.cpp: common_models_handler_init)
        own = of_draft if of_draft.file else of_draft._replace(heads=kinds)
        return Models(target_path, str(hub.fetch(own)))
    if draft is not None:
        return Models(target_path, _draft_file(params))
    head = None
    if of_target is not None and params.get("spec_type") is not None and params.get("draft_host") is None:
        head = hub.fetch_head(of_target, kinds)
    return Models(target_path, None if head is None else str(head))
