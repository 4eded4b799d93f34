"""`duo doctor`: checks the CPU kernels of this machine on a model."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from duo.cli.complete import by_metavar
from duo.support.comma_separated import comma_separated
from duo.support.wording import plural

if TYPE_CHECKING:
    from duo.benchmark import doctor as measure
    from duo.benchmark import doctor_device
    from duo.options.option import CpuKernels


def _layers(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """-1: all."""
    if text is None or text == "all":
        return None if text is None else -1
    if not re.fullmatch("[0-9]{1,6}", text):
        raise click.BadParameter(f"{text} is not a number of layers; give a number, or all")
    return int(text)


@click.command("doctor")
@click.option(
    "-m", "--model", metavar="FILE", shell_complete=by_metavar, help="The model to check. Default: the demo target."
)
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(1, 512),
    metavar="N",
    help="CPU threads of the second measurement (the first uses 1). Default: one per core.",
)
@click.option(
    "--cpu-kernels", type=click.Choice(["auto", "duo", "stock"]), default="auto", help="As for duo run. [default: auto]"
)
@click.option(
    "-ngl",
    "--gpu-layers",
    "--n-gpu-layers",
    "n_gpu_layers",
    metavar="N",
    callback=_layers,
    help="Check the model with N layers on devices (all: every layer) instead of the CPU's kernels.",
)
@click.option("-dev", "--device", metavar="NAME,...", help="The devices of -ngl. Default: every GPU.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor(
    model: str | None,
    threads: int | None,
    cpu_kernels: CpuKernels,
    n_gpu_layers: int | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Check the CPU kernels on a model: equal bits, accuracy, speed.

    duo evaluates 544 tokens of text, then 16 more, one by one and in passes of 1 to 16 tokens, with one thread and with
    several. It checks that the logits are equal, bit for bit. It compares the products of each weight type with double
    precision, and measures passes with duo's kernels and with stock kernels. Of a mixture it counts the experts that a
    pass reads. The model is loaded three times, one after the other. Before that, a child process tries every kind of
    kernel again; from then on duo does not use kernels that crash there. The exit code is 1 if logits differ although
    duo's kernels compute all products.

    With -ngl the model is placed on devices, whole or in part. duo measures passes of 1 to 16 tokens there, says which
    widths give the logits of one row, and compares with the CPU.
    """
    from rich.console import Console

    from duo.benchmark import doctor as measure
    from duo.benchmark import doctor_device
    from duo.models.demo import demo_pair
    from duo.placement.cpus import usable_cores

    n = threads or usable_cores()
    console = Console(stderr=True)
    path = model if model is not None else str(demo_pair()[0])
    names = comma_separated(device)
    if names != ["none"] and (n_gpu_layers is not None or names):
        with console.status("loading") as status:
            placed = doctor_device.examine_placed(
                path,
                -1 if n_gpu_layers is None else n_gpu_layers,
                names,
                n,
                progress=lambda what: status.update(f"measuring {what}"),
            )
        if as_json:
            click.echo(json.dumps(asdict(placed) | {"verdict": placed.verdict()}, indent=2))
        else:
            _print_placed(placed)
        return
    with console.status("loading") as status:
        report = measure.examine(
            path,
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
    from rich.console import Console
    from rich.table import Table

    from duo.benchmark import doctor as measure
    from duo.placement import plugins

    out = Console(highlight=False, markup=False, emoji=False)
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
        out.print(f"{t}: relative squared error of a product {a.duo:.1e} (stock {a.stock:.1e})")
    if r.divergence is not None:
        out.print(f"next-token distribution, duo's kernels compared with stock: KL divergence {r.divergence:.1e} nats")
    for line in r.trial.lines() + plugins.lines():
        out.print(line, soft_wrap=True)
    for sentence in measure.verdict(r):
        out.print(sentence)


def _print_placed(r: doctor_device.DeviceReport) -> None:
    from rich.console import Console
    from rich.table import Table

    from duo.benchmark.doctor import N_CONTEXT

    out = Console(highlight=False, markup=False, emoji=False)
    out.print(f"{r.model} on {', '.join(r.devices)}")
    table = Table(title="milliseconds of a pass", title_justify="left")
    for name in ("tokens", "ms", "v(n)"):
        table.add_column(name, justify="right")
    for width, ms in r.ms.items():
        table.add_row(str(width), f"{ms:.2f}", f"{r.v(width):.2f}")
    out.print(table)
    out.print(f"a prompt of {N_CONTEXT} tokens: {r.prompt_ms:.0f} ms")
    out.print(f"next-token distribution, compared with the CPU: KL divergence {r.divergence:.1e} nats")
    for sentence in r.verdict():
        out.print(sentence)
