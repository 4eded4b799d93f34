"""GGUF files made from the demo pair's: with other header values, other tokens, other weights."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFValueType, GGUFWriter, ReaderTensor

from duo.gguf_tools.whole_file import CheckedGgufReader

Array = np.ndarray[Any, Any]
Value = tuple[GGUFValueType, Any]  # type and value of a header key; an array's type is that of its elements
U32, I32, F32 = GGUFValueType.UINT32, GGUFValueType.INT32, GGUFValueType.FLOAT32
U64, STR, BOOL = GGUFValueType.UINT64, GGUFValueType.STRING, GGUFValueType.BOOL


class _Writer(GGUFWriter):
    """Packs arrays at once: gguf-py takes 30 ms for a vocabulary, token by token."""

    def _pack_val(
        self, val: Any, vtype: GGUFValueType, add_vtype: bool, sub_type: GGUFValueType | None = None
    ) -> bytes:
        if vtype is not GGUFValueType.ARRAY or sub_type is None or not val:
            return super()._pack_val(val, vtype, add_vtype, sub_type)
        head = struct.pack("<IIQ", vtype, sub_type, len(val))
        if sub_type is not STR:
            return head + struct.pack(f"<{len(val)}{self._simple_value_packing[sub_type]}", *val)
        return head + _packed_texts(tuple(val))


@lru_cache(64)  # the vocabulary is in each file
def _packed_texts(texts: tuple[str | bytes, ...]) -> bytes:
    encoded = [x.encode() if isinstance(x, str) else x for x in texts]
    return b"".join(x for text in encoded for x in (struct.pack("<Q", len(text)), text))


def _parts(source: Path) -> tuple[dict[str, Value], list[ReaderTensor]]:
    stat = source.stat()
    return _parts_of(source, stat.st_mtime_ns, stat.st_size)


@lru_cache(32)
def _parts_of(source: Path, *_: int) -> tuple[dict[str, Value], list[ReaderTensor]]:
    reader = CheckedGgufReader(source)
    header = {n: (f.types[-1], f.contents()) for n, f in reader.fields.items() if not n.startswith("GGUF.")}
    return header, reader.tensors


def write(to: Path, header: Mapping[str, Value], tensors: Iterable[tuple[str, Array, Any]]) -> Path:
    """A file of this header and these tensors (name, data, type of the data or None for the array's own)."""
    writer = _Writer(to, "")
    writer.kv_data[0].clear()  # it has put an architecture there itself
    for name, (kind, value) in header.items():
        if isinstance(value, list):
            writer.add_key_value(name, value, GGUFValueType.ARRAY, sub_type=kind)
        else:
            writer.add_key_value(name, value, kind)
    for name, data, raw_type in tensors:
        writer.add_tensor(name, data, raw_dtype=raw_type)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    return to


def rewrite(
    source: Path,
    to: Path,
    *,
    put: Mapping[str, Value] | None = None,
    drop: Collection[str] = (),
    weights: Callable[[str, Array], Array | None] | None = None,
) -> Path:
    """Copies a model: `put` sets header keys, `drop` leaves some out, `weights` maps tensors' bytes (None: without)."""
    header, tensors = _parts(source)
    header = {n: v for n, v in {**header, **(put or {})}.items() if n not in drop}
    changed = ((t, np.array(t.data) if weights is None else weights(t.name, np.array(t.data))) for t in tensors)
    return write(to, header, [(t.name, data, t.tensor_type) for t, data in changed if data is not None])


def tiny_gemma3(source: Path, to: Path, window: int) -> Path:
    """A model with random weights whose layers see so many tokens back, and the vocabulary of `source`."""
    n_embd, n_ff, n_head, n_head_dim, n_vocab = 64, 128, 2, 32, len(tokens_of(source))
    header = {n: v for n, v in _parts(source)[0].items() if n.startswith("tokenizer.")} | {
        "general.architecture": (STR, "gemma3"),
        "gemma3.context_length": (U32, 1024),
        "gemma3.embedding_length": (U32, n_embd),
        "gemma3.block_count": (U32, 2),
        "gemma3.feed_forward_length": (U32, n_ff),
        "gemma3.attention.head_count": (U32, n_head),
        "gemma3.attention.head_count_kv": (U32, n_head),
        "gemma3.attention.key_length": (U32, n_head_dim),
        "gemma3.attention.value_length": (U32, n_head_dim),
        "gemma3.attention.sliding_window": (U32, window),
        "gemma3.attention.layer_norm_rms_epsilon": (F32, 1e-6),
    }
    rng = np.random.default_rng(1)
    tensors: dict[str, Array] = {
        "token_embd.weight": rng.normal(0, 1, (n_vocab, n_embd)),
        "output_norm.weight": np.full(n_embd, 2.0),
    }
    for i in range(2):
        matrices = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (n_embd, n_embd))
        matrices |= {"ffn_gate": (n_ff, n_embd), "ffn_up": (n_ff, n_embd), "ffn_down": (n_embd, n_ff)}
        norms = {"attn_q_norm": n_head_dim, "attn_k_norm": n_head_dim}
        norms |= dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), n_embd)
        for name, shape in matrices.items():
            tensors[f"blk.{i}.{name}.weight"] = rng.normal(0, 1, shape)
        for name, n in norms.items():
            tensors[f"blk.{i}.{name}.weight"] = np.ones(n)
    return write(to, header, [(name, x.astype(np.float32), None) for name, x in tensors.items()])


def tiny_mamba(source: Path, to: Path) -> Path:
    """A recurrent model with random weights and the vocabulary of `source`: what it says depends on all it has read."""
    n_embd, n_inner, n_conv, n_state, n_rank, n_vocab = 32, 64, 4, 16, 4, len(tokens_of(source))
    header = {n: v for n, v in _parts(source)[0].items() if n.startswith("tokenizer.")} | {
        "general.architecture": (STR, "mamba"),
        "mamba.context_length": (U32, 512),
        "mamba.embedding_length": (U32, n_embd),
        "mamba.feed_forward_length": (U32, 0),
        "mamba.attention.head_count": (U32, 0),
        "mamba.block_count": (U32, 2),
        "mamba.ssm.conv_kernel": (U32, n_conv),
        "mamba.ssm.inner_size": (U32, n_inner),
        "mamba.ssm.state_size": (U32, n_state),
        "mamba.ssm.time_step_rank": (U32, n_rank),
        "mamba.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    }
    rng = np.random.default_rng(1)
    tensors: dict[str, Array] = {
        "token_embd.weight": rng.normal(0, 1, (n_vocab, n_embd)),
        "output_norm.weight": np.full(n_embd, 4.0),
    }
    for i in range(2):
        tensors |= {
            f"blk.{i}.attn_norm.weight": np.ones(n_embd),
            f"blk.{i}.ssm_in.weight": rng.normal(0, 0.3, (2 * n_inner, n_embd)),
            f"blk.{i}.ssm_conv1d.weight": rng.normal(0, 0.5, (n_inner, n_conv)),
            f"blk.{i}.ssm_conv1d.bias": np.zeros(n_inner),
            f"blk.{i}.ssm_x.weight": rng.normal(0, 0.3, (n_rank + 2 * n_state, n_inner)),
            f"blk.{i}.ssm_dt.weight": rng.normal(0, 0.3, (n_inner, n_rank)),
            f"blk.{i}.ssm_dt.bias": np.zeros(n_inner),
            f"blk.{i}.ssm_a": -np.tile(np.linspace(0.05, 1, n_state), (n_inner, 1)),
            f"blk.{i}.ssm_d": np.ones(n_inner),
            f"blk.{i}.ssm_out.weight": rng.normal(0, 0.5, (n_embd, n_inner)),
        }
    return write(to, header, [(n, np.ascontiguousarray(t, np.float32), None) for n, t in tensors.items()])


def header_of(path: Path) -> Mapping[str, Value]:
    return _parts(path)[0]


def tokens_of(path: Path) -> list[str]:
    """The texts of a model's vocabulary, as the file spells them."""
    texts: list[str] = _parts(path)[0]["tokenizer.ggml.tokens"][1]
    return texts
