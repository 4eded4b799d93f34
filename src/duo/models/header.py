"""The one reader of GGUF files: the shape of a model and its tensors, from the header, and rows of a tensor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from duo import _core
from duo.errors import BadValueError

_ATTENTION = re.compile(r"\.attn_(k|qkv|kv)")
_STATE = re.compile(r"\.(ssm_|shortconv|time_mix)")
BOTH = ("falcon-h1",)  # each layer keeps a state and attends
REPEATED = ("hrm_text",)  # has tensors of two layers, which are computed again as the others, each with its own cache
_LAYER = re.compile(r"blk\.([0-9]{1,5})\.")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file."""

    name: str
    type: str  # ggml's name
    n_bytes: int
    shape: tuple[int, ...]  # columns first
    part: int  # index in Header.parts
    offset: int  # bytes, from the beginning of that file

    @property
    def layer(self) -> int | None:
        match = _LAYER.match(self.name)
        return int(match[1]) if match else None


@dataclass(frozen=True)
class Header:
    """Sizes are in bytes. Those of a split model cover all parts."""

    path: str
    architecture: str
    name: str  # from the metadata; may be empty
    parts: tuple[str, ...]  # paths; one for a model that is not split
    n_file_bytes: int
    n_layer: int
    n_ctx_train: int
    n_embd: int
    n_ff: int
    n_vocab: int
    n_head: int
    n_head_kv: tuple[int, ...]  # by layer; 0: the layer has no cache
    key_length: int
    value_length: int  # 0: values are not cached (multi-head latent attention)
    tensors: tuple[TensorInfo, ...]
    values: Mapping[str, Any]  # by key, without the vocabulary; of a split model those of the first part

    @cached_property
    def state_layers(self) -> frozenset[int]:
        """Layers that keep a recurrent state."""
        return _state_layers(self.architecture, self.tensors)

    @property
    def n_parts(self) -> int:
        return len(self.parts)

    @property
    def n_trunk(self) -> int:
        """Layers before the MTP layers, which are the last ones."""
        return self.n_layer - _number(dict(self.values), f"{self.architecture}.nextn_predict_layers", 0)

    @property
    def n_mtp(self) -> int:
        """MTP layers that the file has; its header may count some that are in another file."""
        first = f"blk.{self.n_trunk}.nextn.eh_proj.weight"
        return self.n_layer - self.n_trunk if any(t.name == first for t in self.tensors) else 0

    @property
    def has_trunk(self) -> bool:
        """False: the file has MTP layers only."""
        return not self.n_mtp or any(t.name == "blk.0.attn_norm.weight" for t in self.tensors)

    @property
    def n_parameters(self) -> int:
        count = 0
        for t in self.tensors:
            n = 1
            for dimension in t.shape:
                n *= dimension
            count += n
        return count

    @property
    def weight_type(self) -> str:
        """The type that takes the most bytes."""
        by_type = self._bytes_by_type(self.tensors)
        return max(by_type, key=lambda t: by_type[t], default="")

    @property
    def matrix_bytes(self) -> dict[str, int]:
        """Bytes of the matrices by their type, most first."""
        by_type = self._bytes_by_type(t for t in self.tensors if len(t.shape) > 1 and min(t.shape[:2]) > 1)
        return dict(sorted(by_type.items(), key=lambda x: -x[1]))

    @staticmethod
    def _bytes_by_type(tensors: Iterable[TensorInfo]) -> dict[str, int]:
        by_type: dict[str, int] = {}
        for t in tensors:
            by_type[t.type] = by_type.get(t.type, 0) + t.n_bytes
        return by_type


def _number(values: dict[str, Any], key: str, otherwise: int) -> int:
    value = values.get(key, otherwise)
    if isinstance(value, list):
        value = max(value, default=otherwise)
    return value if isinstance(value, int) else otherwise


def _by_layer(values: dict[str, Any], key: str, n_layer: int, otherwise: int) -> tuple[int, ...]:
    value = values.get(key, otherwise)
    if isinstance(value, list):
        return tuple([*value, *[otherwise] * n_layer][:n_layer])
    return (value if isinstance(value, int) else otherwise,) * n_layer


def _state_layers(architecture: str, tensors: Iterable[TensorInfo]) -> frozenset[int]:
    # Recurrent layers of MiniMax-01 have nothing but a matrix for all of Q, K and V.
    state = re.compile(r"\.attn_qkv\.") if architecture == "minimax-01" else _STATE
    return frozenset(t.layer for t in tensors if t.layer is not None and state.search(t.name))


def _attending_layers(architecture: str, n_layer: int, tensors: Sequence[TensorInfo]) -> frozenset[int]:
    if architecture in REPEATED:
        return frozenset(range(n_layer))
    layers = frozenset(t.layer for t in tensors if t.layer is not None and _ATTENTION.search(t.name))
    return layers if architecture in BOTH else layers - _state_layers(architecture, tensors)


def read_header(path: str | os.PathLike[str]) -> Header:
    """Raises UnknownModelError (no such file, not a GGUF file, a part is missing) or BadValueError (truncated or
    corrupt)."""
    raw = _core.read_header(os.fsencode(path))
    v: dict[str, Any] = raw["values"]
    arch = str(v.get("general.architecture", ""))
    tensors = tuple(TensorInfo(name, kind, n, tuple(shape), *where) for name, kind, n, shape, *where in raw["tensors"])
    n_layer, n_embd = _number(v, f"{arch}.block_count", 1), _number(v, f"{arch}.embedding_length", 1)
    n_head = max(1, _number(v, f"{arch}.attention.head_count", 1))
    attends = _attending_layers(arch, n_layer, tensors)
    latent = f"{arch}.attention.key_length_mla" in v
    key_length = _number(v, f"{arch}.attention.key_length", n_embd // n_head)
    return Header(
        path=os.fsdecode(path),
        architecture=arch,
        name=str(v.get("general.name", "")),
        parts=tuple(map(os.fsdecode, raw["parts"])),
        n_file_bytes=raw["n_file_bytes"],
        n_layer=n_layer,
        n_ctx_train=_number(v, f"{arch}.context_length", 1),
        n_embd=n_embd,
        n_ff=_number(v, f"{arch}.feed_forward_length", 4 * n_embd),
        n_vocab=_vocabulary(tensors, v, arch),
        n_head=n_head,
        n_head_kv=tuple(
            n if i in attends else 0
            for i, n in enumerate(_by_layer(v, f"{arch}.attention.head_count_kv", n_layer, n_head))
        ),
        key_length=key_length,
        value_length=0 if latent else _number(v, f"{arch}.attention.value_length", key_length),
        tensors=tensors,
        values=v,
    )


def _vocabulary(tensors: Sequence[TensorInfo], values: dict[str, Any], arch: str) -> int:
    rows = [t.shape[-1] for t in tensors if t.name in ("token_embd.weight", "output.weight") and len(t.shape) == 2]
    return max(rows, default=_number(values, f"{arch}.vocab_size", 0))


def read_rows(h: Header, t: TensorInfo, n_rows: int) -> bytes:
    """The first rows of a matrix, as the file has them. Raises BadValueError: the file cannot be read to their end."""
    n_bytes = t.n_bytes // max(1, t.shape[-1]) * min(n_rows, t.shape[-1])
    path = h.parts[t.part]
    rows = _core.read_bytes(os.fsencode(path), t.offset, n_bytes)
    if len(rows) < n_bytes:
        raise BadValueError(f"{path} cannot be read; check the file")
    return rows
