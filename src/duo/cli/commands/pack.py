"""`duo pack`: packs a model's weights once, so that later starts need not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from duo.cli.complete import by_metavar
from duo.errors import BadValueError, UnknownModelError
from duo.support.ending import ended_as_by_ctrl_c
from duo.support.wording import gigabytes

HELP = """Pack a model's weights for duo's CPU kernels into a file, so that later starts map it instead of packing.

MODEL is a GGUF file (of a split model the first part) or a repository of the hub (user/repo[:quant]). The packed file
is about as large as the model. It lies beside the model (MODEL.packed), or in duo's cache if that folder cannot be
written. In the hub's cache it lies beside the data (blobs), so that the repository's next commit has it, too. Every
command finds it there. --packed FILE names another file, and --packed off ignores it. The file works on all processors,
and the text is the same, bit for bit. duo still reads the model's header and small tensors from MODEL.

If the model's file or the packed format has changed, duo says so, and packs while loading.

With --replace the packed file (70B.packed.gguf) has all that the model's file has, and takes its place: it is written,
read back from the disk and compared with the model's file, byte for byte, and then the model's file is removed. All
commands that run models take it (-m). llama.cpp, other programs, make-draft, train and dev do not. --unpack makes the
model's file again.

\b
Examples:
  duo pack 70B.gguf
  duo pack 8B.gguf --draft
  duo pack 70B.gguf -o /fast/70B.packed && duo -m 70B.gguf --packed /fast/70B.packed
  duo pack 70B.gguf --replace && duo -m 70B.packed.gguf
"""


def _model(name: str) -> str:
    """The path. Raises DuoError."""
    from duo.cli.commands.check import is_file

    if is_file(name):
        return name
    from duo.cli.models import hub_of
    from duo.models.hub.repository import parse

    return str(hub_of({"hf_token": None, "offline": False}).fetch(parse(name)))


@click.command("pack", help=HELP)
@click.argument("model", metavar="MODEL", shell_complete=by_metavar)
@click.option("-o", "--output", metavar="FILE", shell_complete=by_metavar, help="Where to write it.")
@click.option(
    "--draft", is_flag=True, help="Pack it as a draft's weights, which become 4-bit types where that is faster."
)
@click.option("--replace", is_flag=True, help="Keep only the packed file, and remove MODEL.")
@click.option("--unpack", is_flag=True, help="MODEL is such a file: make the model's own file again, beside it.")
@click.option("-t", "--threads", type=click.IntRange(1, 512), metavar="N", help="CPU threads. Default: one per core.")
def pack(model: str, output: str | None, draft: bool, replace: bool, unpack: bool, threads: int | None) -> None:
    from duo.placement.cpus import usable_cores

    if draft + replace + unpack > 1:
        raise BadValueError("--draft, --replace and --unpack exclude each other; give one of them")
    n_threads = threads or max(1, usable_cores())
    if unpack:
        _unpack(model, output, n_threads)
    else:
        _pack(model, output, n_threads, draft=draft, replace=replace)


def _pack(model: str, output: str | None, n_threads: int, *, draft: bool, replace: bool) -> None:
    from duo.cli.commands.check import is_file
    from duo.cli.progress import progress
    from duo.cli.show import warn
    from duo.models.packed_form import is_packed
    from duo.models.paths import model_bytes
    from duo.options.model import ModelOptions
    from duo.options.validate import engine_options
    from duo.placement import kernels, packed, packed_writer
    from duo.placement.packing import NONE, cheap_draft

    if not kernels.available():
        raise BadValueError(
            "duo's CPU kernels do not work on this machine, so there is nothing to pack for; see duo devices"
        )
    if replace and not is_file(model):
        raise BadValueError(f"--replace removes a file, and {model} is a model of the hub; give a file")
    path = _model(model)
    if not os.path.isfile(path):
        raise UnknownModelError(f"there is no file {path}; check the path")
    of_draft = ModelOptions.of(engine_options({}), "draft", path)
    packing, _ = cheap_draft(of_draft, [n_threads]) if draft else (NONE, 0)
    own_name = packed.whole_path(path) if replace else packed.writable_path(path, packing)
    out = own_name if output is None else Path(output)
    if replace:
        beside = packed.default_path(path)
        also = (
            f", and {beside}, if duo packed it from this model," if os.path.isfile(beside) and is_packed(beside) else ""
        )
        warn(f"{path}{also} will be removed when {out} is complete. Presets and links that name it will not find it; "
             f"other programs cannot read {out.name}; duo pack --unpack makes the model's file again")  # fmt: skip
        if os.stat(path).st_nlink > 1:
            warn(f"{path} has other names on the disk (hard links), so its space will not become free")
    began = time.monotonic()
    n_bytes = model_bytes(path)
    with ended_as_by_ctrl_c(), progress("bytes", after_s=0.5) as show:

        def draw(_: str, share: float) -> None:
            show(f"packing {Path(path).name}", share * n_bytes, n_bytes)

        if replace:
            n, kept = packed_writer.replace(path, out, n_threads, draw)
        else:
            n, kept = packed_writer.pack(path, out, packing, n_threads, draw), ""
    if kept:
        warn(kept)
    weights = f" as {packing[0].upper()}" if packing[0] else " as they are" if draft else ""
    click.echo(f"{out}: {gigabytes(n)}, packed{weights} in {time.monotonic() - began:.1f} s")


def _unpack(model: str, output: str | None, n_threads: int) -> None:
    from duo.cli.progress import progress
    from duo.placement import packed, packed_writer

    out = packed.unpacked_path(model) if output is None else Path(output)
    began = time.monotonic()
    with ended_as_by_ctrl_c(), progress("share", after_s=0.5) as show:
        packed_writer.unpack(model, out, n_threads, lambda _, share: show(f"unpacking {Path(model).name}", share, 1.0))
    click.echo(f"{out}: {gigabytes(out.stat().st_size)}, unpacked in {time.monotonic() - began:.1f} s")
