"""`duo pairs`: pairs of models by name."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from duo.cli.complete import by_metavar, pair_names
from duo.errors import BadValue
from duo.support.context import N_CTX_DEFAULT

if TYPE_CHECKING:
    from duo.models import pairs as known

HELP = """List the pairs of models that duo knows by name.

The list comes with duo (models.yaml). Pairs that you add with `duo pairs add` extend it and override its entries.

\b
Examples:
  duo pairs
  duo pairs show llama-3.3-70b
  duo pairs add mine -hf bartowski/Qwen2.5-14B-Instruct-GGUF:Q6_K -hfd bartowski/Qwen2.5-0.5B-Instruct-GGUF:Q8_0
  duo --pair mine -p "Why is the sky blue?"
"""


def _memory(m: known.ModelRef) -> str:
    return "" if m.memory_gb is None else f"{m.memory_gb:g} GB" if m.memory_gb >= 0.1 else f"{1e3 * m.memory_gb:g} MB"


def _as_dict(e: known.Entry) -> dict[str, Any]:
    return {**e.pair.model_dump(exclude_none=True), "own": e.own}


@click.group("pairs", invoke_without_command=True, help=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def pairs(ctx: click.Context, as_json: bool) -> None:
    if ctx.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    from duo.models import pairs as known

    found = known.entries()
    if as_json:
        click.echo(json.dumps([_as_dict(e) for e in found.values()], indent=2))
        return
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = 200  # do not cut or wrap lines in a pipe
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    for column in ("target", "draft", "memory"):
        table.add_column(column, overflow="fold")
    table.add_column("")
    for name, e in found.items():
        memory = " + ".join(filter(None, (_memory(e.pair.target), _memory(e.pair.draft))))
        table.add_row(name, _short(e.pair.target), _short(e.pair.draft), memory, "yours" if e.own else "")
    out.print(table)
    out.print("duo pairs show NAME shows the details of a pair; duo --pair NAME runs it.", style="dim")


def _short(m: known.ModelRef) -> str:
    """The name without the user, to keep lines short."""
    if m.repo is None:
        return str(m.file)
    name = m.repo.split("/")[1].removesuffix("-GGUF").removesuffix("-GGUF-v2")
    return f"{name} {m.quant or ''}".strip()


@pairs.command("show")
@click.argument("name", shell_complete=pair_names)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def show(name: str, as_json: bool) -> None:
    """Show the details of a pair."""
    from duo.models import pairs as known

    e = known.find(name)
    if as_json:
        click.echo(json.dumps(_as_dict(e), indent=2))
        return
    p = e.pair
    click.echo(f"{p.name}{' (yours)' if e.own else ''}")
    for what, m in (("target", p.target), ("draft", p.draft)):
        memory = f", {_memory(m)} of memory at a context of {N_CTX_DEFAULT} tokens" if m.memory_gb is not None else ""
        click.echo(f"{what}: {m}{memory}")
    if p.licence:
        click.echo(f"licence: {p.licence}")
    if p.notes:
        click.echo(f"notes: {p.notes}")
    for box, options in p.placement.items():
        click.echo(f"{box}: duo --pair {p.name} {options}")
    if not p.placement:
        click.echo(f"run it: duo --pair {p.name}")


def _model(what: str, file: str | None, repo: str | None, hub_file: str | None) -> dict[str, Any]:
    from duo.models import pairs as known
    from duo.models.hub.repository import parse

    flags = ("-m", "-hf", "--hf-file") if what == "target" else ("-md", "-hfd", "--hf-file-draft")
    flag, hub_flag, file_flag = flags
    if (file is None) == (repo is None):
        raise BadValue(f"a pair needs one {what}; give it with {flag} or {hub_flag}")
    if repo is None:
        if hub_file is not None:
            raise BadValue(f"{file_flag} needs {hub_flag}; leave it out with {flag}")
        return {"file": str(known.expanded(str(file)).resolve())}
    source = parse(repo, hub_file, hub_flag)
    return {"repo": source.repo} | ({"file": hub_file} if hub_file else {"quant": source.quant} if source.quant else {})


def _words(options: str) -> str:
    try:
        return shlex.join(shlex.split(options))
    except ValueError as e:
        raise BadValue(f"--options is {options!r}, which no shell accepts ({e}); correct the quotes") from None


@pairs.command("add")
@click.argument("name")
@click.option("-m", "--model", metavar="FILE", shell_complete=by_metavar, help="The target: a GGUF file.")
@click.option("-md", "--model-draft", metavar="FILE", shell_complete=by_metavar, help="The draft: a GGUF file.")
@click.option("-hf", "--hf-repo", metavar="USER/REPO[:QUANT]", help="The target from the Hugging Face Hub.")
@click.option("-hfd", "--hf-repo-draft", metavar="USER/REPO[:QUANT]", help="The draft from the Hugging Face Hub.")
@click.option("-hff", "--hf-file", metavar="FILE", help="The file in the repository of -hf.")
@click.option("-hffd", "--hf-file-draft", metavar="FILE", help="The file in the repository of -hfd.")
@click.option("--licence", metavar="TEXT", help="The models' licence.")
@click.option("--notes", metavar="TEXT", help="Your notes on the pair.")
@click.option("--options", metavar="OPTIONS", help="Options for the pair on this machine, as '-ngl 11 -ngld 99'.")
@click.option("--replace", is_flag=True, help="Replace your pair of this name.")
def add(
    name: str,
    model: str | None,
    model_draft: str | None,
    hf_repo: str | None,
    hf_repo_draft: str | None,
    hf_file: str | None,
    hf_file_draft: str | None,
    licence: str | None,
    notes: str | None,
    options: str | None,
    replace: bool,
) -> None:
    """Add a pair to your own list."""
    from pydantic import ValidationError

    from duo.models import pairs as known

    data: dict[str, Any] = {
        "name": name,
        "target": _model("target", model, hf_repo, hf_file),
        "draft": _model("draft", model_draft, hf_repo_draft, hf_file_draft),
        "licence": licence,
        "notes": notes,
        "placement": {"this machine": _words(options)} if options else {},
    }
    try:
        pair = known.Pair.model_validate(data)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        where = ".".join(str(x) for x in first["loc"])
        raise BadValue(f"{where} is {first['input']!r}, but {first['msg'][0].lower() + first['msg'][1:]}") from None
    click.echo(f"added {name} to {known.add(pair, replace=replace)}")
