"""The plan of a widened model: the small model it is made from, its dimensions and its tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import gguf
from gguf import GGMLQuantizationType as GgmlType

from duo.errors import BadValueError

ARCHITECTURES = ("llama", "qwen2", "gemma3", "glm4moe")
# The axes of rows and columns of each weight (of a bias: the rows of its weight). Other tensors are not supported.
AXES = {
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
    n_parts: int = 1  # of its columns; each has the source's first
    is_blank: bool = False  # in an added layer: zeros where the source's columns would be, instead of noise

    @property
    def row_bytes(self) -> int:
        block, block_bytes = gguf.GGML_QUANT_SIZES[self.type]
        return self.dims[-1] // block * block_bytes

    @property
    def bytes(self) -> int:
        return math.prod(self.dims[:-1]) * self.row_bytes


class SmallModel:
    """The small model, opened and checked. Raises BadValueError, UnknownModelError."""

    ff_ratio = 2.75  # n_ff / n_embd of real models
    optional = frozenset({"output", "rope_freqs"})
    width_names: ClassVar[dict[str, str]] = {"embd": "n_embd", "ff": "n_ff", "q": "heads times head size,"}

    def __init__(self, path: Path, reader: gguf.GGUFReader) -> None:
        self.path, self.reader = path, reader
        if self.reader.endianess is not gguf.GGUFEndian.LITTLE:
            raise BadValueError(f"{path}: a big-endian GGUF; only little-endian ones can be widened")
        self.arch = self.value("general.architecture", str)
        if self.arch not in ARCHITECTURES:
            raise BadValueError(f"{path}: architecture '{self.arch}' cannot be widened; only {_NAMES} can")
        if self.value("split.count", int, 1) != 1:
            raise BadValueError(f"{path}: one part of a split model; merge the parts first (llama-gguf-split --merge)")
        self.shape = self._own_shape()
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
        self._axes = self._own_axes()
        self._check_tensors()

    def _own_shape(self) -> WidenedShape:
        keys = ("embedding_length", "feed_forward_length", "block_count")
        return WidenedShape(*(self.value(f"{self.arch}.{key}", int) for key in keys))

    def _own_axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of each weight that such a model may have."""
        return AXES | (_GEMMA3_AXES if self.arch == "gemma3" else {})

    def keys(self, shape: WidenedShape) -> dict[str, int]:
        """Header values of this architecture that say the shape, without those of the heads."""
        return {
            "embedding_length": shape.n_embd,
            "feed_forward_length": shape.n_ff,
            "block_count": shape.n_layer,
        }

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
        for name, of, is_added in self._names(shape.n_layer):
            like = self.tensors[of]
            own = like.shape.tolist()[::-1]
            dims = tuple(widths.get(axis, own[i]) for i, axis in enumerate(self._axes_of(of)))
            kind = like.tensor_type if type is None else type
            tensor = WidenedTensor(name, dims, GgmlType.F32 if len(dims) == 1 else kind, like, like)
            if name.removesuffix(".weight").rpartition(".")[2] in _INPUT_NORMS:
                tensor = replace(tensor, scale=scale)
            tensors.append(self._of_layer(tensor, is_added))
        return tensors

    def _of_layer(self, tensor: WidenedTensor, is_added: bool) -> WidenedTensor:
        """What is peculiar to a tensor of this architecture, or of an added layer."""
        return replace(tensor, source=None) if is_added else tensor

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
        names = self.width_names
        matrices = [(self._axes_of(n)[-1], t.tensor_type) for n, t in self.tensors.items() if len(t.shape) > 1]
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

    def _names(self, n_layer: int) -> list[tuple[str, str, bool]]:
        """The tensors of a model of n_layer layers: name, the source's of this kind, whether the layer was added."""
        names = [(name, name, False) for name in self.tensors if not name.startswith("blk.")]
        for to, (layer, is_added) in enumerate(self._layers(n_layer)):
            names += [(f"blk.{to}.{x}", f"blk.{layer}.{x}", is_added) for x in self._suffixes(layer)]
        return names

    def _layers(self, n_layer: int) -> list[tuple[int, bool]]:
        """Of a model of n_layer layers: the source's layer of this kind, and whether it is an added one."""
        own = self.shape.n_layer
        return [(layer % own, layer >= own) for layer in range(n_layer)]

    def _suffixes(self, layer: int) -> list[str]:
        """Each layer has the same tensors as the first one."""
        return [name[len("blk.0.") :] for name in self.tensors if name.startswith("blk.0.")]

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
        if missing := self._axes.keys() - self.optional - weights:
            raise BadValueError(
                f"{self.path}: tensor '{min(missing)}' is missing; only plain {self.arch} models can be widened"
            )
        if odd := self.tensors.keys() ^ {name for name, _, _ in self._names(self.shape.n_layer)}:
            raise BadValueError(f"{self.path}: '{min(odd)}' is not in every layer; only uniform models can be widened")

    def _axes_of(self, name: str) -> tuple[str, ...]:
        """The axes of a tensor; empty if plain models of this architecture have no such tensor."""
        stem, _, kind = name.rpartition(".")
        axes = self._axes.get(stem.rpartition(".")[2], ())
        return axes if kind == "weight" else axes[:1] if kind == "bias" and len(axes) == 2 else ()


def choose_shape(source: SmallModel, type: GgmlType | None, size: float, dims: dict[str, int | None]) -> WidenedShape:
    """The shape nearest to `size` bytes that resembles a real model: n_embd / n_layer near 96, n_ff / n_embd near
    `ff_ratio`.

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
        # Bytes are linear in n_layer and in n_ff: four plans tell them all.
        first = source.shape.n_layer
        narrow, narrow_2 = n_bytes(n_embd, 0, first), n_bytes(n_embd, 0, first + 1)
        wide, wide_2 = n_bytes(n_embd, 256, first), n_bytes(n_embd, 256, first + 1)
        for n_ff in choices("n_ff", 256, 4 * n_embd):
            per_layer = narrow_2 - narrow + (wide_2 - wide - narrow_2 + narrow) * n_ff // 256
            base = narrow + (wide - narrow) * n_ff // 256 - first * per_layer
            n_layer = dims["n_layer"] or min(max(round((size - base) / per_layer), source.shape.n_layer), _MAX_LAYERS)
            total = base + n_layer * per_layer
            cost = 30 * abs(math.log(total / size)) + abs(math.log2(n_ff / n_embd / source.ff_ratio))
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
