"""`duo check`: says whether a draft fits a target, and where both would go."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.cli.check_report import print_check
from duo.cli.complete import files
from duo.cli.models import hub_of, model_sources
from duo.cli.options import ModelCommand, given_options, model_options
from duo.errors import BadValueError, DuoError
from duo.options.accept import promise
from duo.options.experts import ExpertOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS

if TYPE_CHECKING:
    from duo.models.hub.repository import HubModel
    from duo.placement.compatibility import CheckedModel, PairCheck
    from duo.placement.devices import Device

HELP = """Say whether a draft fits a target, how much memory both need, and where they would be placed.

TARGET and DRAFT are GGUF files (of a split model the first part) or repositories of the hub (user/repo[:quant]). A
single argument may also be the name of a pair. The draft of a single model is its own MTP layers, if it has any, or the
one that `duo -m` would use for this file. duo reads only the headers, and downloads only the headers of models on the
hub. The rules are the same as for loading. A draft may have another vocabulary, if a tenth of the smaller one is
shared: its guesses are translated. The exit code is 1 if the draft does not fit the target.

\b
Examples:
  duo check 70B.gguf 8B.gguf
  duo check 70B.gguf 8B.gguf -c 16384 -ctk q8_0 -ctv q8_0 --json
  duo check demo
  duo check demo --accept typical
  duo check 30B-A3B.gguf --vram 12G --ram 64G
"""

OPTIONS = (
    "n_ctx",
    "n_ctx_draft",
    "n_parallel",
    "n_gpu_layers",
    "n_gpu_layers_draft",
    "type_k",
    "type_v",
    "type_k_draft",
    "type_v_draft",
    "device",
    "device_draft",
    "override_tensor",
    "override_tensor_draft",
    *ExpertOptions.__annotations__,
    "fit_target",
    "accept",
)


class StandIns:
    """Header files below `folder` in place of hub models that are not downloaded. They are removed after the check."""

    def __init__(self, params: dict[str, Any], folder: str) -> None:
        self._params, self._folder = params, folder
        self._repo_of: dict[str, str] = {}  # by folder

    def make(self, source: HubModel) -> Path:
        """Creates one; if the cache has the model, returns the model instead. Raises DuoError."""
        folder = tempfile.mkdtemp(dir=self._folder)
        self._repo_of[folder] = source.repo
        return hub_of(self._params).heads(source, Path(folder))

    def with_repo_names(self, text: str) -> str:
        """The sentence with the names of repositories in place of temporary folders."""
        for folder, repo in self._repo_of.items():
            text = text.replace(folder, repo)
        return text


def _paths(models: tuple[str, ...], stand_in: Callable[[HubModel], Path]) -> tuple[str, str | None]:
    """The paths of target and draft; the same one twice: a model with MTP layers; None: none. Raises DuoError."""
    if len(models) == 1 and (os.path.exists(models[0]) or models[0].lower().endswith(".gguf")):
        return models[0], _own_layers(models[0]) or _found_beside(models[0])
    if len(models) not in (1, 2):
        raise BadValueError(f"{len(models)} models were given; give a target and a draft, or the name of a pair")
    if len(models) == 2:
        _refuse_pairs(models)
    if len(models) == 2 and all(map(is_file, models)):
        return models[0], models[1]
    from duo.models.hub.head_files import KINDS
    from duo.models.hub.repository import parse

    if len(models) == 1 and "/" in models[0]:
        alone = str(stand_in(parse(models[0])))
        return alone, _own_layers(alone)
    if len(models) == 1:
        target, draft = _of_pair(models[0], stand_in)
    else:
        target, draft = (
            Path(m) if is_file(m) else stand_in(parse(m)._replace(heads=heads))
            for m, heads in zip(models, ((), KINDS), strict=True)
        )
    return str(target), str(draft)


def _own_layers(model: str) -> str | None:
    """The model, if its own MTP layers can be its draft. Raises DuoError."""
    from duo import _core
    from duo.models.header import read_header

    h = read_header(model)
    return model if h.n_mtp and _core.runs_mtp(h.architecture) else None


def _found_beside(model: str) -> str | None:
    """The draft that `duo -m` would use for this file; None: there is none. Raises DuoError."""
    from duo.models.beside import find

    source = find(model)
    if source.path is not None:
        show.warn(f"{Path(source.path).name} {source.where} and is checked as its draft")
    elif source.why_not:
        show.warn(f"a file beside the target has the name of a draft, but is not used: {source.why_not}")
    return source.path


def _refuse_pairs(models: tuple[str, ...]) -> None:
    """Raises BadValueError: one of two models is the name of a pair."""
    from duo.models import pairs

    for name in models:
        if "/" not in name and not os.path.exists(name) and name in pairs.entries():
            raise BadValueError(f"{name} is the name of a pair, which has both models; give it alone")


def _of_pair(name: str, stand_in: Callable[[HubModel], Path]) -> tuple[Path, Path]:
    """Raises DuoError, also if n-grams are its only source of guesses."""
    from duo.models import pairs

    target, draft = pairs.paths(name, stand_in)
    if draft is None and not pairs.find(name).pair.own_layers:
        raise BadValueError(f"the pair {name} has no draft, only n-grams; give a target and a draft")
    return target, target if draft is None else draft


def is_file(model: str) -> bool:
    """A file, not a repository."""
    return os.path.exists(model) or model.lower().endswith(".gguf") or model.count("/") != 1


def _machine(params: dict[str, Any]) -> tuple[list[Device], int | None]:
    """The devices of this machine, or those that --vram describes, and the free bytes beside them; None: this one's.

    Raises BadValueError.
    """
    from duo.placement.devices import Device, devices
    from duo.placement.pair_fit import bytes_of

    host = None if params["ram"] is None else bytes_of(params["ram"], "--ram")
    if params["vram"] is None:
        return devices(), host
    sizes = [bytes_of(size, "--vram") for size in params["vram"].split(",")]
    cpu = [d for d in devices() if d.type == "cpu"]
    return [*(Device(f"GPU{i}", "described by --vram", "gpu", n, n) for i, n in enumerate(sizes)), *cpu], host


def _checked(params: dict[str, Any]) -> PairCheck:
    from duo.placement.compatibility import check_pair

    with tempfile.TemporaryDirectory(prefix="duo-check-") as folder:
        stand_ins = StandIns(params, folder)

        def with_base_name(m: CheckedModel) -> CheckedModel:
            path = m.header.path
            return replace(m, header=replace(m.header, path=os.path.basename(path))) if path.startswith(folder) else m

        try:
            target, draft = _paths(params["models"], stand_ins.make)
            devices, host_free = _machine(params)
            c = check_pair(
                target,
                draft,
                devices,
                host_free,
                mtp=len(params["models"]) == 1 and target == draft,
                **given_options(params, ENGINE_OPTIONS),
            )
        except DuoError as e:
            e.args = (stand_ins.with_repo_names(str(e)),)
            raise
        of_draft = None if c.draft is None else with_base_name(c.draft)
        return replace(c, target=with_base_name(c.target), draft=of_draft, why_not=stand_ins.with_repo_names(c.why_not))


def run(params: dict[str, Any]) -> None:
    from duo.options.validate import engine_options, generate_options

    rule = generate_options(given_options(params, GENERATE_OPTIONS))["accept"]
    c = _checked(params)
    if params["json"]:
        click.echo(json.dumps({**c.as_dict(), "acceptance": promise(rule)}, indent=2))
    else:
        o = engine_options(given_options(params, ENGINE_OPTIONS))
        print_check(c, (o["type_k_draft"], o["type_v_draft"]))
        if c.draft is not None:
            click.echo(promise(rule))
    if not c.compatible:
        raise click.exceptions.Exit(1)


command = ModelCommand(
    "check",
    params=[
        click.Argument(["models"], nargs=-1, metavar="TARGET [DRAFT]", shell_complete=files),
        *(o for o in model_options() if o.name in OPTIONS),
        *(o for o in model_sources() if o.name in ("hf_token", "offline")),
        click.Option(["vram", "--vram"], metavar="SIZE,SIZE",
                     help="Check for GPUs with this much memory (12G, or 24G,12G; G is GiB) instead of this "
                          "machine's devices. They are called GPU0, GPU1."),
        click.Option(["ram", "--ram"], metavar="SIZE",
                     help="Check for a machine with this much free RAM (32G; G is GiB). What is said about kernels is "
                          "about this machine."),
        click.Option(["json", "--json"], is_flag=True, help="Print everything as JSON, sizes in bytes."),
    ],
    callback=lambda **params: run(params),
    help=HELP,
)  # fmt: skip
