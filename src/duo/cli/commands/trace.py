"""`duo trace`: figures and a picture of a file that `duo --trace` wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import click

from duo.errors import BadValueError, MissingPackageError

if TYPE_CHECKING:
    from duo.generation.trace_writer import Event


@click.command("trace")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Draw both lanes to this .svg or .png file.")
@click.option(
    "--from", "start_ms", type=float, metavar="MS", help="Start of the part, counted from the start of the trace."
)
@click.option("--to", "end_ms", type=float, metavar="MS", help="End of the part, counted from the start of the trace.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def trace(file: Path, output: Path | None, start_ms: float | None, end_ms: float | None, as_json: bool) -> None:
    """Say how much of the draft's time was hidden behind the target, and draw it.

    FILE was written by --trace. The figures cover the whole trace, or the part between --from and --to. Without them,
    the picture shows about 30 verifications from the middle of the trace; with one of them, 30 next to it.
    """
    from duo.benchmark.trace import between, clip, read_trace

    try:
        events = read_trace(file)
        part = events
        if events and (start_ms, end_ms) != (None, None):
            part = clip(events, *between(events, start_ms, end_ms))
        if output is not None:
            from duo.benchmark.trace_picture import draw  # imported here: only the picture needs matplotlib

            draw(events, output, title=_title(file), start_ms=start_ms, end_ms=end_ms)
    except OSError as error:
        raise BadValueError(f"{error.filename or file}: {error.strerror or error}; check the path") from None
    except ImportError:
        raise MissingPackageError("drawing needs matplotlib; install it with: pip install 'duo-llama[bench]'") from None
    if as_json:
        click.echo(json.dumps(_figures(part), indent=2))
    else:
        _print(part)
    if output is not None:
        click.echo(f"wrote {output}", err=True)


def _title(file: Path) -> str:
    from duo.benchmark.trace import read_models

    target, draft = read_models(file)
    models = f"target {target}" + (f", draft {draft}" if draft is not None else "")
    return shorten(models, width=110, placeholder=" ...")


def _figures(events: list[Event]) -> dict[str, int | float]:
    from duo.benchmark.trace import overlap

    figures = overlap(events)
    verified = [event for event in events if event.kind == "verify"]
    return {
        **asdict(figures),
        "target_busy_share": figures.target_busy_share,
        "draft_busy_share": figures.draft_busy_share,
        "hidden_share": figures.hidden_share,
        "n_verifications": len(verified),
        "n_drafted": sum(event.n_drafted for event in verified),
        "n_accepted": sum(event.n_accepted for event in verified),
        "n_hits": sum(event.hit for event in verified),
    }


def _print(events: list[Event]) -> None:
    from rich.console import Console
    from rich.table import Table

    figures = _figures(events)
    rows = [
        ("time", _seconds(figures["wall_us"]), ""),
        ("target busy", _seconds(figures["target_busy_us"]), f"{figures['target_busy_share']:.1%}"),
        ("verifications", f"{figures['n_verifications']:,}", ""),
    ]
    if any(event.lane == "draft" for event in events):
        rows += [
            ("hits", f"{figures['n_hits']:,}", _share(figures["n_hits"], figures["n_verifications"], "verifications")),
            ("drafted tokens verified", f"{figures['n_drafted']:,}", ""),
            ("accepted", f"{figures['n_accepted']:,}", _share(figures["n_accepted"], figures["n_drafted"], "them")),
            ("draft busy", _seconds(figures["draft_busy_us"]), f"{figures['draft_busy_share']:.1%}"),
            ("hidden", _seconds(figures["both_busy_us"]), f"{figures['hidden_share']:.1%} of the draft's time"),
        ]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _seconds(us: float) -> str:
    return f"{us / 1e6:,.3f} s"


def _share(part: float, total: float, of: str) -> str:
    return f"{part / total:.1%} of {of}" if total else ""
