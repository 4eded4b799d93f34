"""duo widen: make a big model out of a small one, for measuring speed."""

from __future__ import annotations

import re
from pathlib import Path

import click

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_size(text: str) -> float:
    """Bytes of '600M', '1.5G', '2GiB' or '1000000'; plain units are decimal, as on disks."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]I?)?B?", text.strip().upper())
    if match is None:
        raise click.ClickException(f"--size '{text}' is not a size; write it as 600M, 1.5G or 2GiB")
    return float(match[1]) * _UNITS[match[2] or ""]


@click.command()
@click.argument("small", metavar="SMALL.gguf", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="BIG.gguf", required=True, type=click.Path(path_type=Path))
@click.option("--size", metavar="SIZE", help="File size to aim at (600M, 1.5G, 2GiB); chooses what is not given below.")
@click.option("--n-embd", metavar="N", type=int, help="Width of the model.")
@click.option("--n-ff", metavar="N", type=int, help="Width of the feed-forward layers.")
@click.option("--n-layer", metavar="N", type=int, help="Number of layers.")
@click.option("--type", "type_", metavar="TYPE", default="q8_0", show_default=True,
              help="Type of the weights: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0.")  # fmt: skip
def widen(
    small: Path, output: Path, size: str | None, n_embd: int | None, n_ff: int | None, n_layer: int | None, type_: str
) -> None:
    """Make a model of any size that says exactly what a small one says.

    The weights that are added cost what real ones cost and change nothing. Meant for measuring the speed of big
    models where there are none. Only llama models can be widened. Where --n-embd is 4 or 16 times the small one's,
    logits are equal to the last bit; elsewhere they differ by rounding.

    \b
    Examples:
      duo widen small.gguf -o big.gguf --size 1G
      duo widen small.gguf -o big.gguf --n-embd 2048 --n-layer 16 --type f16
    """
    # Imported here because gguf takes a third of a second, which `duo --help` need not wait for.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from duo.dev.widen import widen as widen_model

    n_bytes = None if size is None else parse_size(size)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(output.name, total=None)
            report = widen_model(
                small,
                output,
                n_embd=n_embd,
                n_ff=n_ff,
                n_layer=n_layer,
                size=n_bytes,
                type=type_,
                progress=lambda _, done, total: bar.update(task, completed=done, total=total),
            )
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    shape = f"n_embd {report.n_embd}, n_ff {report.n_ff}, {report.n_layer} layers"
    click.echo(f"{report.path}: {report.bytes / 1e9:.3g} GB, {report.n_parameters / 1e6:.4g} M parameters, {shape}")
