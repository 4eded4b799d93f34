"""`duo doctor`: is this machine well, with this model?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from duo.cli.complete import by_metavar
from duo.measure import doctor as measure
from duo.models.demo import demo_pair
from duo.options.option import CpuKernels
from duo.placement.cpus import usable_cores
from duo.support.wording import plural


@click.command("doctor")
@click.option(
    "-m", "--model", metavar="FILE", shell_complete=by_metavar, help="The target to look at. Default: the demo target."
)
@click.option(
    "-t", "--threads", type=click.IntRange(1, 512), metavar="N", help="CPU threads, besides one. Default: the cores."
)
@click.option(
    "--cpu-kernels", type=click.Choice(["auto", "duo", "stock"]), default="auto", help="As for duo. [default: auto]"
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor(model: str | None, threads: int | None, cpu_kernels: CpuKernels, as_json: bool) -> None:
    """Check the CPU kernels on a model: equal bits, accuracy, speed.

    Evaluates 544 tokens of text, then 16 more one by one and in passes of 1 to 16 tokens, with one thread and with
    several: are the logits the same, bit for bit? Compares each weight type's product with double precision, and times
    passes with duo's kernels and with stock ones. The model is loaded three times, one after the other. Before that
    every kind of kernel is tried in a child process, once more; what crashes here is not used from then on.
    Exit code 1 if logits differ although all products are duo's.
    """
    n = threads or usable_cores()
    console = Console(stderr=True)
    with console.status("loading") as status:
        report = measure.examine(
            model if model is not None else str(demo_pair()[0]),
            cpu_kernels,
            sorted({1, n}),
            progress=lambda what: status.update(f"measuring {what}"),
        )
    if as_json:
        click.echo(json.dumps(asdict(report) | {"verdict": measure.verdict(report)}, indent=2))
    else:
        _print(report, n)
    if report.promised and not report.same_bits:
        sys.exit(1)


def _print(r: measure.Report, n_threads: int) -> None:
    out = Console(highlight=False)
    out.print(f"{r.model} on {r.processor}")
    table = Table(title=f"milliseconds of a pass, {plural(n_threads, 'thread')}", title_justify="left")
    table.add_column("tokens", justify="right")
    for which in ("stock", "duo"):
        if which in r.ms:
            table.add_column(which, justify="right")
            table.add_column("v(n)", justify="right")
    for width in measure.SPEED_WIDTHS:
        cells = [
            f"{r.ms[w][width]:.2f}" if i == 0 else f"{r.v(w, width):.2f}"
            for w in ("stock", "duo")
            if w in r.ms
            for i in (0, 1)
        ]
        table.add_row(str(width), *cells)
    out.print(table)
    for t, a in r.accuracy.items():
        out.print(f"{t}: squared error of a product {a.duo:.1e} (stock {a.stock:.1e}) of the exact one's")
    if r.divergence is not None:
        out.print(f"next-token distribution, duo's against stock's: KL divergence {r.divergence:.1e} nats")
    for line in r.trial.lines():
        out.print(line, soft_wrap=True)
    for sentence in measure.verdict(r):
        out.print(sentence)
