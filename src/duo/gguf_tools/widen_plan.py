"""The plan of a widened model: the small model it is made from, its dimensions and its tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import gguf
from gguf import GGMLQuantizationType as GgmlType

from duo.errors import BadValueError
from duo.gguf_tools.whole_file import whole_file

ARCHITECTURES = ("llama", "qwen2", "gemma3")
# The axes of rows and columns of each weight (of a bias: the rows of its weight). Other tensors are not supported.
_AXES = {
    "token_embd": ("vocab", "embd"),
    "output_norm": ("embd",),
    "output": ("vocab", "embd"),
    "rope_freqs": ("rope",),
    "attn_norm": ("embd",),
    "attn_q": ("q", "embd"),
    "attn_k": ("kv", "embd"),
    "attn_v": ("kv", "embd"),
    "attn_output": ("embd", "q"),
    "ffn_norm": ("embd",),
    "ffn_gate": ("ff", "embd"),
    "ffn_up": ("ff", "embd"),
    "ffn_down": ("embd", "ff"),
}
_GEMMA3_AXES = {
    "attn_q_norm": ("head",),
    "attn_k_norm": ("head",),
    "post_attention_norm": ("embd",),
    "post_ffw_norm": ("embd",),
}
_OPTIONAL = {"output", "rope_freqs"}
_INPUT_NORMS = ("attn_norm", "ffn_norm", "output_norm")  # of the residual
_GEMMA3_27B_LAYERS = 62  # llama.cpp scales attention by another length in a gemma3 of so many layers
_MAX_LAYERS = 512  # llama.cpp's limit
_MAX_CHOSEN_EMBD = 16384

_NAMES = f"{', '.join(ARCHITECTURES[:-1])} and {ARCHITECTURES[-1]}"

T = TypeVar("T", int, float, str)


@dataclass(frozen=True)
class WidenedShape:
    n_embd: int
    n_ff: int
    n_layer: int


@dataclass(frozen=True)
class WidenedTensor:
    """One tensor of the output."""

    name: str
    dims: tuple[int, ...]  # rows first
    type: GgmlType
    source: gguf.ReaderTensor | None  # None: the tensor is in an added layer
    like: gguf.ReaderTensor  # the source's tensor of this kind
    scale: float = 1.0  # of its values, if it is a norm of the residual

    @property
    def row_bytes(self) -> int:
        block, block_bytes = gguf.GGML_QUANT_SIZES[self.type]
        return self.dims[-1] // block * block_bytes

    @property
    def bytes(self) -> int:
        return math.prod(self.dims[:-1]) * self.row_bytes


class SmallModel:
    """The small model, opened and checked. Raises BadValueError, UnknownModelError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader = whole_file(path)
        if self.reader.endianess is not gguf.GGUFEndian.LITTLE:
            raise BadValueError(f"{path}: a big-endian GGUF; only little-endian ones can be widened")
        self.arch = self.value("general.architecture", str)
        if self.arch not in ARCHITECTURES:
            raise BadValueError(f"{path}: architecture '{self.arch}' cannot be widened; only {_NAMES} can")
        if self.value("split.count", int, 1) != 1:
            raise BadValueError(f"{path}: one part of a split model; merge the parts first (llama-gguf-split --merge)")
        keys = ("embedding_length", "feed_forward_length", "block_count")
        self.shape = WidenedShape(*(self.value(f"{self.arch}.{key}", int) for key in keys))
        self.n_head = self.value(f"{self.arch}.attention.head_count", int)
        self.n_head_kv = self.value(f"{self.arch}.attention.head_count_kv", int, self.n_head)
        is_sane = 0 < self.shape.n_layer <= _MAX_LAYERS and 0 < self.n_head_kv <= self.n_head
        if not is_sane or self.n_head % self.n_head_kv:
            counts = f"{self.shape.n_layer} layers, {self.n_head} heads and {self.n_head_kv} KV heads"
            raise BadValueError(f"{path}: {counts} are not possible; convert it again")
        self.head_dim = self.value(f"{self.arch}.attention.key_length", int, self.shape.n_embd // self.n_head)
        if self.value(f"{self.arch}.attention.value_length", int, self.head_dim) != self.head_dim:
            raise BadValueError(
                f"{path}: keys and values differ in length; only models where they agree can be widened"
            )
        self.eps = self.value(f"{self.arch}.attention.layer_norm_rms_epsilon", float)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self._layer_tensors = [name[len("blk.0.") :] for name in self.tensors if name.startswith("blk.0.")]
        self._axes = _AXES | (_GEMMA3_AXES if self.arch == "gemma3" else {})
        self._check_tensors()

    @property
    def is_scaled(self) -> bool:
        """Whether the model multiplies embeddings by the root of its width."""
        return self.arch == "gemma3"

    def value(self, key: str, kind: type[T], default: T | None = None) -> T:
        field = self.reader.fields.get(key)
        try:
            content = default if field is None else field.contents()
        except UnicodeDecodeError as error:
            raise BadValueError(f"{self.path}: '{key}' is not valid text ({error}); convert the file again") from error
        if not isinstance(content, kind):
            what = "missing" if content is None else f"{content!r:.20}, not {kind.__name__}"
            raise BadValueError(f"{self.path}: '{key}' is {what}; only plain {_NAMES} models can be widened")
        return content

    def heads(self, n_embd: int) -> tuple[int, int]:
        """Numbers of query and KV heads at this width: as many whole groups as fit."""
        group = self.n_head // self.n_head_kv
        n_head_kv = max(self.n_head_kv, n_embd // self.head_dim // group)
        return n_head_kv * group, n_head_kv

    def plan(self, shape: WidenedShape, type: GgmlType | None) -> list[WidenedTensor]:
        """The tensors of the output. One-dimensional ones (norms, biases) are float32, as llama.cpp requires.

        type: of the matrices; None: as in the source.
        """
        widths, scale = self._widths(shape), math.sqrt(self.shape.n_embd / shape.n_embd)
        tensors = []
        for name in self._names(shape.n_layer):
            tensor, like = self.tensors.get(name), self._like(name)
            own = like.shape.tolist()[::-1]
            dims = tuple(widths.get(axis, own[i]) for i, axis in enumerate(self._axes_of(name)))
            kind = GgmlType.F32 if len(dims) == 1 else like.tensor_type if type is None else type
            is_input = name.removesuffix(".weight").rpartition(".")[2] in _INPUT_NORMS
            tensors.append(WidenedTensor(name, dims, kind, tensor, like, scale if is_input else 1.0))
        return tensors

    def _like(self, name: str) -> gguf.ReaderTensor:
        """Its own tensor, or for an added layer that of one of the source's layers."""
        if name in self.tensors:
            return self.tensors[name]
        _, layer, suffix = name.split(".", 2)
        return self.tensors[f"blk.{int(layer) % self.shape.n_layer}.{suffix}"]

    def check(self, type: GgmlType | None, n_embd: int | None, n_ff: int | None, n_layer: int | None) -> None:
        """Raises BadValueError: the model cannot have these dimensions."""
        for name, n in (("n_embd", n_embd), ("n_ff", n_ff), ("n_layer", n_layer)):
            own = getattr(self.shape, name)
            if n is not None and n < own:
                raise BadValueError(
                    f"{self.path}: {name} {n} is less than its own {own}; a model can only be made larger"
                )
        if n_layer is not None and n_layer > _MAX_LAYERS:
            raise BadValueError(f"{self.path}: n_layer {n_layer} is more than llama.cpp's {_MAX_LAYERS}; ask for less")
        if self.arch == "gemma3" and (n_layer == _GEMMA3_27B_LAYERS) != (self.shape.n_layer == _GEMMA3_27B_LAYERS):
            raise BadValueError(
                f"{self.path}: with 62 layers llama.cpp takes a gemma3 for the 27B; ask for another number"
            )
        self._check_widths(type, self._widths(WidenedShape(n_embd or self.shape.n_embd, n_ff or self.shape.n_ff, 1)))

    def _check_widths(self, type: GgmlType | None, widths: dict[str, int]) -> None:
        names = {"embd": "n_embd", "ff": "n_ff", "q": "heads times head size,"}
        matrices = [(self._axes_of(n)[1], t.tensor_type) for n, t in self.tensors.items() if len(t.shape) == 2]
        for axis, kind in matrices if type is None else [(axis, type) for axis in names]:
            block = gguf.GGML_QUANT_SIZES[kind][0]
            if widths[axis] % block:
                size = f"{names[axis]} {widths[axis]}"
                raise BadValueError(
                    f"{self.path}: {size} is not a multiple of {block}, the block of {kind.name.lower()}"
                )
        if self.arch == "qwen2" and widths["q"] != widths["embd"]:
            group = self.head_dim * self.n_head // self.n_head_kv
            raise BadValueError(
                f"{self.path}: the heads of a qwen2 fill its width; ask for an n_embd that {group} divides"
            )

    def _widths(self, shape: WidenedShape) -> dict[str, int]:
        q, kv = (n * self.head_dim for n in self.heads(shape.n_embd))
        return {"embd": shape.n_embd, "ff": shape.n_ff, "q": q, "kv": kv, "head": self.head_dim}

    def _names(self, n_layer: int) -> list[str]:
        """The tensors of a model of n_layer layers: each layer has the same tensors as the first one."""
        layers = [f"blk.{layer}.{suffix}" for layer in range(n_layer) for suffix in self._layer_tensors]
        return [name for name in self.tensors if not name.startswith("blk.")] + layers

    def _check_tensors(self) -> None:
        widths = self._widths(self.shape)
        for name, tensor in self.tensors.items():
            dims, axes = tensor.shape.tolist()[::-1], self._axes_of(name)
            if not axes:
                raise BadValueError(
                    f"{self.path}: tensor '{name}' is unknown; only plain {self.arch} models can be widened"
                )
            if len(dims) != len(axes) or any(widths.get(a, n) != n for a, n in zip(axes, dims, strict=True)):
                raise BadValueError(
                    f"{self.path}: tensor '{name}' is {dims}, which does not match the metadata; convert it again"
                )
        weights = {name.split(".")[-2] for name in self.tensors if name.endswith(".weight")}
        if missing := self._axes.keys() - _OPTIONAL - weights:
            raise BadValueError(
                f"{self.path}: tensor '{min(missing)}' is missing; only plain {self.arch} models can be widened"
            )
        if odd := self.tensors.keys() ^ set(self._names(self.shape.n_layer)):
            raise BadValueError(f"{self.path}: '{min(odd)}' is not in every layer; only uniform models can be widened")

    def _axes_of(self, name: str) -> tuple[str, ...]:
        """The axes of a tensor; empty if plain models of this architecture have no such tensor."""
        stem, _, kind = name.rpartition(".")
        axes = self._axes.get(stem.rpartition(".")[2], ())
        return axes if kind == "weight" else axes[:1] if kind == "bias" and len(axes) == 2 else ()


def choose_shape(source: SmallModel, type: GgmlType | None, size: float, dims: dict[str, int | None]) -> WidenedShape:
    """The shape nearest to `size` bytes that resembles a real model: n_embd / n_layer near 96, n_ff / n_embd near 2.75.

    Raises BadValueError: the size is out of reach.
    """

    def n_bytes(n_embd: int, n_ff: int, n_layer: int) -> int:
        return sum(tensor.bytes for tensor in source.plan(WidenedShape(n_embd, n_ff, n_layer), type))

    def choices(name: str, step: int, most: int) -> list[int]:
        least, fixed = getattr(source.shape, name), dims[name]
        return [least, *range(least // step * step + step, most + 1, step)] if fixed is None else [fixed]

    least = n_bytes(source.shape.n_embd, source.shape.n_ff, source.shape.n_layer)
    if not math.isfinite(size) or size < least:
        kind = "it is" if type is None else type.name.lower()
        raise BadValueError(
            f"{source.path}: needs {least} bytes as {kind}, more than the requested {size:.0f}; ask for a larger size"
        )
    candidates: list[tuple[float, int, WidenedShape]] = []
    step = math.lcm(256, source.head_dim * (source.n_head // source.n_head_kv))
    for n_embd in choices("n_embd", step, _MAX_CHOSEN_EMBD):
        # The size is base + n_layer * (per_layer + n_ff * per_unit) bytes: three plans give all three numbers.
        one, two, wide = n_bytes(n_embd, 0, 1), n_bytes(n_embd, 0, 2), n_bytes(n_embd, 256, 1)
        base = 2 * one - two
        for n_ff in choices("n_ff", 256, 4 * n_embd):
            per_layer = two - one + (wide - one) * n_ff // 256
            n_layer = dims["n_layer"] or min(max(round((size - base) / per_layer), source.shape.n_layer), _MAX_LAYERS)
            total = base + n_layer * per_layer
            cost = 30 * abs(math.log(total / size)) + abs(math.log2(n_ff / n_embd / 2.75))
            cost += 0.5 * abs(math.log2(n_embd / n_layer / 96))
            # A width ratio of 4, 16... keeps the norms, and so the logits, exact. That is worth an unusual shape.
            cost += 0 if math.log(n_embd / source.shape.n_embd, 4).is_integer() else 0.5
            candidates.append((cost, total, WidenedShape(n_embd, n_ff, n_layer)))
    _, total, shape = min(candidates, key=lambda candidate: candidate[0])
    if abs(math.log(total / size)) > 0.2:
        raise BadValueError(
            f"{source.path}: a size of {size:.0f} bytes is out of reach; the nearest is {total}, ask for that"
        )
    return shape
