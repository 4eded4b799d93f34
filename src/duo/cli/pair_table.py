"""The tables of `duo pairs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from duo.support.wording import gigabytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from duo.models import pairs as pair_list
    from duo.placement.pair_fit import Fit

OWN_LAYERS, NGRAMS = "its own MTP layers", "n-grams"
KINDS = {"mtp": "MTP layers", "eagle3": "EAGLE-3", "dflash": "DFlash", "dspark": "DSpark"}


def memory(m: pair_list.ModelRef | None) -> str:
    """The memory of a model, as text; empty: it is unknown, or there is no model."""
    if m is None or m.memory_gb is None:
        return ""
    return f"{m.memory_gb:g} GB" if m.memory_gb >= 0.1 else f"{1e3 * m.memory_gb:g} MB"


def guesser(p: pair_list.Pair) -> str:
    """The name of what guesses for the target."""
    if p.draft is None:
        return OWN_LAYERS if p.own_layers else NGRAMS
    return short(p.draft) + (f" ({KINDS[p.head]})" if p.head is not None else "")


def short(m: pair_list.ModelRef) -> str:
    """The name without the user, to keep lines short."""
    if m.repo is None:
        return str(m.file)
    name = m.repo.split("/")[1].removesuffix("-GGUF").removesuffix("-GGUF-v2")
    return f"{name} {m.quant or ''}".strip()


def print_all(entries: Iterable[pair_list.Entry]) -> None:
    out, table = _console(), _table("target", "draft", "memory", "")
    for e in entries:
        sizes = " + ".join(filter(None, (memory(e.pair.target), memory(e.pair.draft))))
        table.add_row(e.pair.name, short(e.pair.target), guesser(e.pair), sizes, "yours" if e.own else "")
    out.print(table)
    out.print("duo pairs show NAME shows the details of a pair; duo --pair NAME runs it.", style="dim")


def print_fits(pair_fits: Sequence[Fit], device: str | None) -> None:
    """device: the memory of a GPU; None: there is none."""
    on_gpu = [] if device is None else [f"on a GPU of {device}"]
    out, table = _console(), _table("target", "draft", *on_gpu, "in RAM", "options")
    for f in pair_fits:
        p = f.entry.pair
        what = {
            "whole": "all",
            "experts in RAM": "all but some experts",
            "partly": f"{100 * f.share:.0f}% of the target" + (" and the draft" if p.draft is not None else ""),
            "CPU": "",
        }[f.way]
        on_host = gigabytes(int(f.host_gb * 1e9)) if f.host_gb else ""
        on_device = f"{what}, {gigabytes(int(f.device_gb * 1e9))}"
        table.add_row(p.name, short(p.target), guesser(p), *([on_device] if on_gpu else []), on_host, f.options)
    out.print(table)
    out.print("duo --pair NAME OPTIONS runs a pair so; by default -ngl and -ngld are auto.", style="dim")
    out.print("G is GiB, as on the boxes of GPUs; a GB of the table is a billion bytes.", style="dim")


def fit_as_dict(f: Fit) -> dict[str, Any]:
    """The fit as JSON has it."""
    figures = {"device_gb": round(f.device_gb, 2), "host_gb": round(f.host_gb, 2), "target_share": round(f.share, 3)}
    return {"placement": f.way, **figures, "options": f.options}


def _console() -> Console:
    from rich.console import Console

    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = 200  # do not cut or wrap lines in a pipe
    return out


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
