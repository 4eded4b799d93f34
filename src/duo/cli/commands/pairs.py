"""`duo pairs`: pairs of models by name."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from duo.cli import pair_table
from duo.cli.complete import by_metavar, pair_names
from duo.errors import BadValueError
from duo.options.speculation import NGRAMS
from duo.support.context import N_CTX_DEFAULT
from duo.support.home import expanded

if TYPE_CHECKING:
    from duo.models import pairs as pair_list

HELP = """List the pairs of models that duo knows by name.

The list comes with duo (models.yaml). Pairs that you add with `duo pairs add` extend it and override its entries.

\b
Examples:
  duo pairs
  duo pairs --for 12G --ram 64G
  duo pairs --ram 16G
  duo pairs show llama-3.3-70b
  duo pairs add mine -hf bartowski/Qwen2.5-14B-Instruct-GGUF:Q6_K -hfd bartowski/Qwen2.5-0.5B-Instruct-GGUF:Q8_0
  duo --pair mine -p "Why is the sky blue?"
"""


def _as_dict(e: pair_list.Entry) -> dict[str, Any]:
    return {**e.pair.model_dump(mode="json", exclude_none=True), "own": e.own}


@click.group("pairs", invoke_without_command=True, help=HELP)
@click.option(
    "--for",
    "device",
    metavar="SIZE",
    help="Only pairs that fit a GPU with this much memory (12G, 8192M; G is GiB), where their models are placed, and "
    "the options for that.",
)
@click.option(
    "--ram",
    metavar="SIZE",
    help="Leave out pairs that need more RAM than this. Without --for: pairs for a machine without a GPU, where an "
    "eighth of the RAM stays free, at most 2 GiB.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def pairs(ctx: click.Context, device: str | None, ram: str | None, as_json: bool) -> None:
    if ctx.invoked_subcommand is not None:
        return
    from duo.models import pairs as pair_list

    entries = pair_list.entries().values()
    if device is not None or ram is not None:
        _print_fits(entries, device, ram, as_json=as_json)
    elif as_json:
        click.echo(json.dumps([_as_dict(e) for e in entries], indent=2))
    else:
        pair_table.print_all(entries)


def _print_fits(entries: Iterable[pair_list.Entry], device: str | None, ram: str | None, *, as_json: bool) -> None:
    """device None: there is no GPU."""
    from duo.placement.pair_fit import bytes_of, fits

    host_gb = None if ram is None else bytes_of(ram, "--ram") / 1e9
    pair_fits = fits(entries, 0.0 if device is None else bytes_of(device, "--for") / 1e9, host_gb)
    if as_json:
        click.echo(json.dumps([{**_as_dict(f.entry), "fit": pair_table.fit_as_dict(f)} for f in pair_fits], indent=2))
    elif pair_fits:
        pair_table.print_fits(pair_fits, device)
    else:
        gpu = f"a GPU of {device}" if device is not None else "a machine without a GPU"
        beside = f" with {ram} of RAM" if ram is not None else ""
        raise BadValueError(f"duo knows no pair for {gpu}{beside}; duo pairs shows all of them")


@pairs.command("show")
@click.argument("name", shell_complete=pair_names)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def show(name: str, as_json: bool) -> None:
    """Show the details of a pair."""
    from duo.benchmark.bench.expected import expected, sentence
    from duo.models import pairs as pair_list

    e = pair_list.find(name)
    if as_json:
        click.echo(json.dumps(_as_dict(e), indent=2))
        return
    p = e.pair
    click.echo(f"{p.name}{' (yours)' if e.own else ''}")
    for what, m in (("target", p.target), ("draft", p.draft)):
        if m is None:
            how = f" (--spec-type {p.spec_type})" if p.spec_type == NGRAMS else ""  # MTP layers need no option
            click.echo(f"{what}: none; {pair_table.guesser(p)} guess{how}")
            continue
        memory = f", {pair_table.memory(m)} of memory at a context of {N_CTX_DEFAULT} tokens" if m.memory_gb else ""
        memory += f", {m.dense_gb:g} GB of it without the experts" if m.dense_gb is not None else ""
        kind = f" ({pair_table.KINDS[p.head]})" if what == "draft" and p.head is not None else ""
        click.echo(f"{what}: {m}{kind}{memory}")
    guess = None if p.gain else expected(p)
    gains = {"gain": p.gain, "expected gain": guess and sentence(guess)}
    facts = {"n-grams": p.ngrams, **gains, "licence": p.licence, "notes": p.notes}
    for what, text in {**facts, "names and sizes from": "; ".join(p.sources)}.items():
        if text:
            click.echo(f"{what}: {text}")
    for box, options in p.placement.items():
        click.echo(f"{box}: duo --pair {p.name} {options}")
    if not p.placement:
        click.echo(f"run it: duo --pair {p.name}")


def _model(what: str, file: str | None, repo: str | None, hub_file: str | None) -> dict[str, Any]:
    from duo.models.hub.repository import parse

    flags = ("-m", "-hf", "--hf-file") if what == "target" else ("-md", "-hfd", "--hf-file-draft")
    flag, hub_flag, file_flag = flags
    if (file is None) == (repo is None):
        raise BadValueError(f"a pair needs one {what}; give it with {flag} or {hub_flag}")
    if repo is None:
        if hub_file is not None:
            raise BadValueError(f"{file_flag} needs {hub_flag}; leave it out with {flag}")
        if "://" in str(file):
            raise BadValueError(f"{flag} {file} is a URL, and a pair has files; give {hub_flag}, or download it first")
        return {"file": os.path.abspath(expanded(str(file)))}  # of a link: the name says more than that of its target
    source = parse(repo, hub_file, hub_flag)
    return {"repo": source.repo} | ({"file": hub_file} if hub_file else {"quant": source.quant} if source.quant else {})


def _words(options: str) -> str:
    try:
        return shlex.join(shlex.split(options))
    except ValueError as e:
        raise BadValueError(f"--options is {options!r}, which no shell accepts ({e}); correct the quotes") from None


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

    from duo.models import pairs as pair_list

    data: dict[str, Any] = {
        "name": name,
        "target": _model("target", model, hf_repo, hf_file),
        "draft": _model("draft", model_draft, hf_repo_draft, hf_file_draft),
        "licence": licence,
        "notes": notes,
        "placement": {"this machine": _words(options)} if options else {},
    }
    try:
        pair = pair_list.Pair.model_validate(data)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        where = ".".join(str(x) for x in first["loc"])
        raise BadValueError(
            f"{where} is {first['input']!r}, but {first['msg'][0].lower() + first['msg'][1:]}"
        ) from None
    click.echo(f"added {name} to {pair_list.add(pair, replace=replace)}")
