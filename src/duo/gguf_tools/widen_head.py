"""Widening a draft head: a larger EAGLE-3 head that drafts what a small one drafts, for a widened target.

As in widen.py, what is added is only multiplied by zeros. The embedding and the state are each as wide as the head, and
the features are one target's width for each layer that is read, so their columns come in several parts. Each part has
the small head's columns first. A widened target begins with the layers of the small one, so the head reads the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

from duo.errors import BadValueError, DuoError
from duo.gguf_tools.whole_file import CheckedGgufReader, copy_field, whole_file
from duo.models.header import Header, read_header
from duo.support.atomic import replacing

Array = npt.NDArray[Any]

# The axes of rows and columns of each matrix. Axes of several parts: "pair" (embedding and state), "features".
_AXES = {
    "fc": ("embd", "features"),
    "token_embd": ("vocab", "embd"),
    "output": ("rows", "embd"),
    "blk.0.attn_q": ("q", "pair"),
    "blk.0.attn_k": ("kv", "pair"),
    "blk.0.attn_v": ("kv", "pair"),
    "blk.0.attn_output": ("embd", "q"),
    "blk.0.ffn_gate": ("ff", "embd"),
    "blk.0.ffn_up": ("ff", "embd"),
    "blk.0.ffn_down": ("embd", "ff"),
}


@dataclass(frozen=True)
class Axis:
    """n_parts times n numbers, which become n_parts times n_wide."""

    n: int
    n_wide: int
    n_parts: int = 1

    @property
    def total(self) -> int:
        return self.n_wide * self.n_parts

    def places(self) -> npt.NDArray[np.intp]:
        """Where the small head's numbers are."""
        return np.concatenate([i * self.n_wide + np.arange(self.n) for i in range(self.n_parts)])


@dataclass(frozen=True)
class HeadSizes:
    """n_head and n_head_kv grow with n_embd; the length of a head stays."""

    n_embd: int
    n_ff: int


class SmallHead:
    """The head that is widened. Raises BadValueError, UnknownModelError."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.reader: CheckedGgufReader = whole_file(path)
        self.header: Header = read_header(path)
        if self.header.architecture != "eagle3":
            raise BadValueError(
                f"{path}: architecture '{self.header.architecture}' is no EAGLE-3 head; leave --target out"
            )
        self.tensors = {t.name: t for t in self.reader.tensors}
        missing = [name for name in _AXES if f"{name}.weight" not in self.tensors]
        if missing:
            raise BadValueError(
                f"{path}: tensor '{missing[0]}.weight' is missing; only heads with their own can be widened"
            )
        self.n_target = read_header(target).n_embd
        self.n_target_own = self.number("target_hidden_size")
        if self.n_target < self.n_target_own:
            raise BadValueError(
                f"{target}: n_embd {self.n_target} is less than the {self.n_target_own} that {path} reads"
            )
        self.sizes = HeadSizes(self.number("embedding_length"), self.number("feed_forward_length"))
        self.n_head = self.number("attention.head_count")
        self.n_head_kv = self.number("attention.head_count_kv")
        self.head_dim = self.number("attention.key_length")
        self.n_layers = len(self.header.values["eagle3.target_layers"])

    def number(self, key: str) -> int:
        value = self.header.values.get(f"eagle3.{key}")
        if not isinstance(value, int):
            raise BadValueError(f"{self.path}: 'eagle3.{key}' is missing; convert the head again")
        return value

    def heads(self, n_embd: int) -> tuple[int, int]:
        """Query and KV heads at this width."""
        times = max(1, n_embd // self.sizes.n_embd)
        return self.n_head * times, self.n_head_kv * times

    def axes(self, name: str, wide: HeadSizes) -> tuple[Axis, Axis]:
        own = self.sizes
        q, kv = (n * self.head_dim for n in self.heads(wide.n_embd))
        embd = Axis(own.n_embd, wide.n_embd)
        known = {
            "embd": embd,
            "pair": Axis(embd.n, embd.n_wide, 2),
            "features": Axis(self.n_target_own, self.n_target, self.n_layers),
            "q": Axis(self.n_head * self.head_dim, q),
            "kv": Axis(self.n_head_kv * self.head_dim, kv),
            "ff": Axis(own.n_ff, wide.n_ff),
        }
        n_rows = int(self.tensors[f"{name}.weight"].shape[1])
        rows, columns = (known.get(axis, Axis(n_rows, n_rows)) for axis in _AXES[name])
        return rows, columns

    def bytes_of(self, wide: HeadSizes, type: GgmlType) -> int:
        """Bytes of all matrices."""
        block, n_bytes = gguf.GGML_QUANT_SIZES[type]
        sizes = (self.axes(name, wide) for name in _AXES)
        return sum(rows.total * columns.total // block * n_bytes for rows, columns in sizes)

    def choose(self, size: float, type: GgmlType) -> HeadSizes:
        """The widest head of this size. Its width is 4, 16, ... times its own, where norms stay exact.

        Raises BadValueError: it is larger already."""
        own = self.sizes
        if size < self.bytes_of(own, type):
            raise BadValueError(
                f"{self.path}: needs {self.bytes_of(own, type)} bytes, more than the requested {size:.0f}"
            )
        n_embd = own.n_embd
        while self.bytes_of(HeadSizes(4 * n_embd, own.n_ff), type) <= size:
            n_embd *= 4
        none, some = (self.bytes_of(HeadSizes(n_embd, n), type) for n in (0, 256))
        return HeadSizes(n_embd, max(own.n_ff, round((size - none) / (some - none)) * 256))


def widen_head(
    source: Path,
    out: Path,
    target: Path,
    *,
    n_embd: int | None = None,
    n_ff: int | None = None,
    size: float | None = None,
    type: str = "q8_0",
) -> HeadSizes:
    """Writes a head for `target` that drafts what `source` drafts for the model that `target` was made from.

    size: bytes of its matrices, about; it needs four times as much memory. Raises DuoError: BadValueError for a
    request or a head that is not supported.
    """
    kind = GgmlType[type.upper()]
    small = SmallHead(source, target)
    own = small.sizes
    wide = small.choose(size, kind) if size is not None else HeadSizes(n_embd or own.n_embd, n_ff or own.n_ff)
    block = gguf.GGML_QUANT_SIZES[kind][0]
    if wide.n_embd % own.n_embd or wide.n_embd % block or wide.n_ff < own.n_ff or wide.n_ff % block:
        raise BadValueError(f"{source}: n_embd must be a multiple of {own.n_embd}, n_ff at least {own.n_ff}, "
                       f"both multiples of {block}")  # fmt: skip
    try:
        with replacing(out) as part:
            _write(part, small, wide, kind)
    except OSError as e:
        raise DuoError(f"{out}: could not be written ({e.strerror}); choose another place") from None
    return wide


def _write(path: Path, small: SmallHead, wide: HeadSizes, type: GgmlType) -> None:
    share = small.sizes.n_embd / wide.n_embd
    n_head, n_head_kv = small.heads(wide.n_embd)
    changed = {
        "embedding_length": wide.n_embd,
        "feed_forward_length": wide.n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "target_hidden_size": small.n_target,
    }
    eps = "eagle3.attention.layer_norm_rms_epsilon"
    dropped = {"general.architecture", eps, *(f"eagle3.{key}" for key in changed)}
    writer = gguf.GGUFWriter(path, "eagle3")
    for key, field in small.reader.fields.items():
        if not key.startswith("GGUF.") and key not in dropped:
            copy_field(writer, field)
    for key, value in changed.items():
        writer.add_uint32(f"eagle3.{key}", value)
    writer.add_float32(eps, float(small.header.values[eps]) * share)
    rng = np.random.default_rng(0)
    for name, tensor in small.tensors.items():
        stem = name.removesuffix(".weight")
        if stem in _AXES:
            stored = gguf.quantize(_matrix(tensor, stem, small.axes(stem, wide), rng), type)
            writer.add_tensor(name, stored, raw_dtype=type)
        elif name.endswith(("norm.weight", "norm_2.weight")):
            norm = np.asarray(tensor.data, np.float32) * np.float32(math.sqrt(share))
            writer.add_tensor(name, np.pad(norm, (0, wide.n_embd - len(norm))))
        else:  # d2t
            writer.add_tensor(name, np.asarray(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _matrix(tensor: gguf.ReaderTensor, stem: str, axes: tuple[Axis, Axis], rng: np.random.Generator) -> Array:
    """The small matrix, zeros below it, and noise beside it; nothing is beside an embedding, which is the residual."""
    rows, columns = axes
    own = gguf.dequantize(np.asarray(tensor.data), tensor.tensor_type).astype(np.float32)
    if stem == "token_embd":
        return np.pad(own, ((0, 0), (0, columns.total - own.shape[1])))
    matrix = np.resize(rng.normal(0, 0.02, 1 << 20).astype(np.float32), (rows.total, columns.total))
    matrix[:, columns.places()] = 0
    matrix[np.ix_(rows.places(), columns.places())] = own
    return matrix
