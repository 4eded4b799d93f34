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

from duo.cli.complete import files
from duo.cli.first_line import another_vocabulary
from duo.cli.models import hub_of, model_sources
from duo.cli.options import ModelCommand, given, model_options
from duo.errors import BadValue, DuoError
from duo.options.accept import promise
from duo.options.experts import ExpertOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.support.wording import gigabytes, plural

if TYPE_CHECKING:
    from duo.models.header import Header
    from duo.models.hub.repository import Source
    from duo.placement.compatibility import CheckedModel, PairCheck, Vocabulary

HELP = """Say whether a draft fits a target, how much memory both need, and where they would go.

TARGET and DRAFT are GGUF files (of a split model the first part) or repositories of the hub (user/repo[:quant]). A
single argument that is not a file is the name of a pair; the draft of a single file is its own MTP layers. duo reads
only the headers, and downloads only the headers of models on the hub. The rules are the same as for loading. A draft
may have another vocabulary, if a tenth of the smaller one is shared: its guesses are translated. The exit code is 1 if
the draft does not fit the target.

\b
Examples:
  duo check 70B.gguf 8B.gguf
  duo check 70B.gguf 8B.gguf -c 16384 -ctk q8_0 -ctv q8_0 --json
  duo check demo
  duo check demo --accept typical
"""

OPTIONS = (
    "n_ctx",
    "n_ctx_draft",
    "type_k",
    "type_v",
    "type_k_draft",
    "type_v_draft",
    "device",
    "device_draft",
    "override_tensor",
    "override_tensor_draft",
    *ExpertOptions.__annotations__,
    "accept",
)


class StandIns:
    """Header files below `folder` in place of hub models that are not downloaded. They are removed after the check."""

    def __init__(self, params: dict[str, Any], folder: str) -> None:
        self._params, self._folder = params, folder
        self._repo_of: dict[str, str] = {}  # by folder

    def make(self, source: Source) -> Path:
        """Creates one; if the cache has the model, returns the model instead. Raises DuoError."""
        folder = tempfile.mkdtemp(dir=self._folder)
        self._repo_of[folder] = source.repo
        return hub_of(self._params).heads(source, Path(folder))

    def named(self, text: str) -> str:
        """The sentence with the names of repositories in place of temporary folders."""
        for folder, repo in self._repo_of.items():
            text = text.replace(folder, repo)
        return text


def _paths(models: tuple[str, ...], stand_in: Callable[[Source], Path]) -> tuple[str, str]:
    """The paths of target and draft; the same one twice: a model with MTP layers. Raises DuoError."""
    if len(models) == 1 and os.path.exists(models[0]):
        from duo.models.header import read_header

        if not read_header(models[0]).n_mtp:
            raise BadValue(f"{models[0]} is only one model, without MTP layers; give the draft too")
        return models[0], models[0]
    if len(models) not in (1, 2):
        raise BadValue(f"{len(models)} models were given; give a target and a draft, or the name of a pair")
    if len(models) == 2 and all(map(is_file, models)):
        return models[0], models[1]
    from duo.models.hub.head_files import KINDS
    from duo.models.hub.repository import parse

    if len(models) == 1:
        target, draft = _of_pair(models[0], stand_in)
    else:
        target, draft = (
            Path(m) if is_file(m) else stand_in(parse(m)._replace(heads=heads))
            for m, heads in zip(models, ((), KINDS), strict=True)
        )
    return str(target), str(draft)


def _of_pair(name: str, stand_in: Callable[[Source], Path]) -> tuple[Path, Path]:
    """Raises DuoError, also if n-grams are its only source of guesses."""
    from duo.models import pairs

    target, draft = pairs.paths(name, stand_in)
    if draft is None and not pairs.find(name).pair.own_layers:
        raise BadValue(f"the pair {name} has no draft, only n-grams; give a target and a draft")
    return target, target if draft is None else draft


def is_file(model: str) -> bool:
    """A file, not a repository."""
    return os.path.exists(model) or model.lower().endswith(".gguf") or model.count("/") != 1


def _token(text: str, number: int, added: bool) -> str:
    if number < 0:
        return "none"
    return f"{number} {text!r}, {'added' if added else 'not added'}"


def _print(c: PairCheck, cache_types: tuple[str, str]) -> None:
    """cache_types: of the draft's keys and values."""
    from rich.console import Console
    from rich.table import Table

    from duo import _core
    from duo.models.head import cache_warning
    from duo.placement import states

    out = Console(highlight=False, soft_wrap=True)
    table = Table("", "target", "draft", box=None, padding=(0, 2, 0, 0))
    both = c.target, c.draft
    headers = [m.header for m in both]
    files = [os.path.basename(h.path) + (f" (and {h.n_parts - 1} more)" if h.n_parts > 1 else "") for h in headers]
    table.add_row("file", *files)
    table.add_row("model", *(f"{h.architecture}, {_count(h.n_parameters)}, {h.weight_type}" for h in headers))
    vocabularies = [m.vocabulary for m in both]
    table.add_row("tokenizer", *(f"{v.type}, {v.n_tokens} tokens" for v in vocabularies))
    table.add_row("begin", *(_token(v.bos_text, v.bos, v.add_bos) for v in vocabularies))
    table.add_row("end", *(_token(v.eos_text, v.eos, v.add_eos) for v in vocabularies))
    table.add_row("context", *(f"{m.n_ctx} tokens" for m in both))
    needs = [m.need for m in both]
    table.add_row("weights", *(gigabytes(n.total_weights) for n in needs))
    table.add_row("types", *(_types(h) for h in headers))
    table.add_row("cache", *(gigabytes(n.total_cache) for n in needs))
    table.add_row("work", *(f"about {gigabytes(max(n.work, n.logits))}" for n in needs))
    table.add_row("together", *(gigabytes(n.total) for n in needs))
    out.print(table)
    if head := c.draft.head:
        own = head.kind == "mtp" and c.draft.header.has_trunk
        out.print(f"the draft is {'its own ' if own else ''}" + head.line())
        for line in cache_warning(*cache_types):
            out.print(line)
    elif (n := c.target.header.n_mtp) and _core.runs_mtp(c.target.header.architecture):
        out.print(f"the target has {plural(n, 'MTP layer')}, which can be its draft: --spec-type draft-mtp without -md")
    if line := states.sentence(c.target.header):
        out.print(line)
    if line := _stock_sentence(c.target.header):
        out.print(line)
    out.print(
        c.placement.line() + ("" if c.fits else f"; the CPU has too little memory ({gigabytes(c.host_free)} free)")
    )
    if not c.compatible:
        out.print(c.why_not)
    elif c.shared is not None:
        out.print(f"the draft has {another_vocabulary(c.shared)} ({c.difference})")
    else:
        out.print("the draft fits the target" + _padding(*vocabularies))


N_TYPES_SHOWN, SHARE_SHOWN = 4, 0.02


def _main_types(h: Header) -> dict[str, int]:
    """The types that take a part of the matrices' bytes that is worth a word."""
    found = h.matrix_bytes
    least = SHARE_SHOWN * sum(found.values())
    return {t: n for t, n in list(found.items())[:N_TYPES_SHOWN] if n >= least}


def _types(h: Header) -> str:
    return ", ".join(f"{t} {gigabytes(n)}" for t, n in _main_types(h).items())


def _stock_sentence(h: Header) -> str:
    """Which of the target's types duo's kernels do not multiply, and what this means; empty: none."""
    from duo import _core

    name, _ = _core.kernels()
    other = [t for t in _main_types(h) if t not in _core.kernel_types()]
    if not name or not other:
        return ""
    return (
        f"on the CPU llama.cpp's own kernels compute {' and '.join(other)}; there a pass that verifies several guesses "
        "takes nearly as long as several passes, so a draft brings less"
    )


def _padding(target: Vocabulary, draft: Vocabulary) -> str:
    n = abs(target.n_tokens - draft.n_tokens)
    return f" (the vocabularies differ by {n} tokens at the end, which does not matter)" if n else ""


def _count(n: int) -> str:
    return f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.1f}M"


def _checked(params: dict[str, Any]) -> PairCheck:
    from duo.placement.compatibility import check_pair
    from duo.placement.devices import devices

    with tempfile.TemporaryDirectory(prefix="duo-check-") as folder:
        stand_ins = StandIns(params, folder)

        def named(m: CheckedModel) -> CheckedModel:
            path = m.header.path
            return replace(m, header=replace(m.header, path=os.path.basename(path))) if path.startswith(folder) else m

        try:
            target, draft = _paths(params["models"], stand_ins.make)
            c = check_pair(
                target,
                draft,
                devices(),
                mtp=len(params["models"]) == 1 and target == draft,
                **given(params, ENGINE_OPTIONS),
            )
        except DuoError as e:
            e.args = (stand_ins.named(str(e)),)
            raise
        return replace(c, target=named(c.target), draft=named(c.draft), why_not=stand_ins.named(c.why_not))


def run(params: dict[str, Any]) -> None:
    from duo.options.validate import engine_options, generate_options

    rule = generate_options(given(params, GENERATE_OPTIONS))["accept"]
    c = _checked(params)
    if params["json"]:
        click.echo(json.dumps({**c.as_dict(), "acceptance": promise(rule)}, indent=2))
    else:
        o = engine_options(given(params, ENGINE_OPTIONS))
        _print(c, (o["type_k_draft"], o["type_v_draft"]))
        click.echo(promise(rule))
    if not c.compatible:
        raise click.exceptions.Exit(1)


command = ModelCommand(
    "check",
    params=[
        click.Argument(["models"], nargs=-1, metavar="TARGET DRAFT", shell_complete=files),
        *(o for o in model_options() if o.name in OPTIONS),
        *(o for o in model_sources() if o.name in ("hf_token", "offline")),
        click.Option(["json", "--json"], is_flag=True, help="Print everything as JSON, sizes in bytes."),
    ],
    callback=lambda **params: run(params),
    help=HELP,
)
