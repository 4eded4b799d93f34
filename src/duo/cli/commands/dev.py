"""`duo dev`: commands for developers of duo: models for tests and benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import click

from duo.cli.progress import progress
from duo.errors import BadValueError
from duo.support.ending import ended_as_by_ctrl_c

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@click.group("dev")
def dev() -> None:
    """Make models for tests and benchmarks.

    \b
    Commands:
      duo dev widen          make a large model that writes what a small one writes
      duo dev random-model   make a draft whose guesses are never right
    """


def parse_size(text: str) -> float:
    """Bytes of '600M', '1.5G', '2GiB' or '1000000'; plain units are decimal, as on disks. Raises BadValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]I?)?B?", text.strip().upper())
    if match is None:
        raise BadValueError(f"--size '{text}' is not a size; write it as 600M, 1.5G or 2GiB")
    return float(match[1]) * _UNITS[match[2] or ""]


@dev.command()
@click.argument("small", metavar="SMALL.gguf", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="BIG.gguf", required=True, type=click.Path(path_type=Path), help="The file to write."
)
@click.option(
    "--size", metavar="SIZE", help="Wanted file size (600M, 1.5G, 2GiB); sets the dimensions that are not given."
)
@click.option("--n-embd", metavar="N", type=int, help="Width of the model.")
@click.option("--n-ff", metavar="N", type=int, help="Width of the feed-forward layers; of a mixture: of each expert.")
@click.option("--n-layer", metavar="N", type=int, help="Number of layers.")
@click.option("--type", "type_", metavar="TYPE", default="q8_0", show_default=True,
              help="Type of the weights: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0; or same: each keeps its own."
              )  # fmt: skip
@click.option("--target", metavar="FILE", type=click.Path(path_type=Path),
              help="For a draft head (EAGLE-3): the widened target that it will draft for.")  # fmt: skip
def widen(
    small: Path,
    output: Path,
    size: str | None,
    n_embd: int | None,
    n_ff: int | None,
    n_layer: int | None,
    type_: str,
    target: Path | None,
) -> None:
    """Make a model of any size that writes exactly what a small one writes.

    The added weights cost as much time and memory as real ones and change nothing. Use it to measure the speed of
    large models without having one. Only llama, qwen2, gemma3 and glm4moe models and EAGLE-3 heads are supported. If
    --n-embd is 4 or 16 times the width of the small model, the logits are equal to the last bit (gemma3: but for the
    epsilon of two norms). Otherwise they differ by rounding. --type same keeps each weight's blocks, also those of
    K-quants. A mixture of experts (glm4moe) keeps its number of experts and chooses among them as before.

    \b
    Examples:
      duo dev widen small.gguf -o big.gguf --size 1G
      duo dev widen small.gguf -o big.gguf --n-embd 2048 --n-layer 16 --type f16
      duo dev widen small-q4_k_m.gguf -o big.gguf --size 5G --type same
      duo dev widen head.gguf -o big-head.gguf --target big.gguf --size 90M
    """
    from duo.gguf_tools.widen import widen as widen_model
    from duo.gguf_tools.widen_head import widen_head

    n_bytes = None if size is None else parse_size(size)
    if target is not None:
        if n_layer is not None:
            raise BadValueError("--n-layer was given for a draft head, which has one layer; leave it out")
        with ended_as_by_ctrl_c():
            sizes = widen_head(small, output, target, n_embd=n_embd, n_ff=n_ff, size=n_bytes, type=type_)
        click.echo(f"{output}: {output.stat().st_size / 1e9:.3g} GB, n_embd {sizes.n_embd}, n_ff {sizes.n_ff}")
        return
    with ended_as_by_ctrl_c(), progress("bytes") as show:
        report = widen_model(
            small,
            output,
            n_embd=n_embd,
            n_ff=n_ff,
            n_layer=n_layer,
            size=n_bytes,
            type=type_,
            progress=lambda _, done, total: show(output.name, done, total),
        )
    shape = f"n_embd {report.n_embd}, n_ff {report.n_ff}, {report.n_layer} layers"
    click.echo(f"{report.path}: {report.bytes / 1e9:.3g} GB, {report.n_parameters / 1e6:.4g} M parameters, {shape}")


@dev.command("random-model")
@click.argument("source", metavar="SOURCE.gguf", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="OUT.gguf", required=True, type=click.Path(path_type=Path), help="The file to write."
)
@click.option("-s", "--seed", metavar="N", type=click.IntRange(min=0), default=7, show_default=True, help="Seed.")
def random_model(source: Path, output: Path, seed: int) -> None:
    """Make a copy of a model with random weights: a draft whose guesses are never right.

    It keeps the vocabulary, so it fits the same targets. Use it to measure what a useless draft costs.

    \b
    Examples:
      duo dev random-model small.gguf -o random.gguf
    """
    from duo.gguf_tools.random_model import randomize

    randomize(source, output, seed=seed)
    click.echo(f"{output}: {output.stat().st_size / 1e9:.3g} GB, random weights")
