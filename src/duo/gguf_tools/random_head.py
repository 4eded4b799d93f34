"""A draft head (EAGLE-3) with random weights for a target: never right, for tests and for the price of a step.

The format is what llama.cpp reads (src/models/eagle3.cpp). RoPE is the interleaved kind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from duo.errors import BadValueError, DuoError
from duo.gguf_tools.whole_file import whole_file
from duo.models.header import read_header

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class RandomHeadShape:
    """Sizes of a head. n_draft_vocab: tokens that it can propose; None: all. The embedding and the output matrix may be
    left out; the head then uses its target's, and must be as wide as the target."""

    n_embd: int = 192
    n_ff: int = 512
    n_head: int = 3
    head_dim: int = 64
    layers: Sequence[int] = (1, 2, 3)  # of the target, whose inputs it reads
    n_draft_vocab: int | None = None
    own_embedding: bool = True
    own_output: bool = True


def random_weights(target: str | os.PathLike[str], shape: RandomHeadShape, seed: int) -> dict[str, Array]:
    """Tensors of a head by name, rows first. Raises DuoError: `target` cannot be read."""
    header = read_header(target)
    rng = np.random.default_rng(seed)
    n, n_attn = shape.n_embd, shape.n_head * shape.head_dim

    def matrix(rows: int, columns: int) -> Array:
        x: Array = (rng.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)
        return x

    out: dict[str, Array] = {
        "fc.weight": matrix(n, len(shape.layers) * header.n_embd),
        "blk.0.attn_norm.weight": np.ones(n, np.float32),
        "blk.0.attn_norm_2.weight": np.ones(n, np.float32),
        "blk.0.attn_q.weight": matrix(n_attn, 2 * n),
        "blk.0.attn_k.weight": matrix(n_attn, 2 * n),
        "blk.0.attn_v.weight": matrix(n_attn, 2 * n),
        "blk.0.attn_output.weight": matrix(n, n_attn),
        "blk.0.ffn_norm.weight": np.ones(n, np.float32),
        "blk.0.ffn_gate.weight": matrix(shape.n_ff, n),
        "blk.0.ffn_up.weight": matrix(shape.n_ff, n),
        "blk.0.ffn_down.weight": matrix(n, shape.n_ff),
        "output_norm.weight": np.ones(n, np.float32),
    }
    if shape.own_embedding:
        out["token_embd.weight"] = matrix(header.n_vocab, n)
    if shape.own_output:
        out["output.weight"] = 4 * matrix(shape.n_draft_vocab or header.n_vocab, n)
    if shape.n_draft_vocab is not None:
        out["d2t"] = np.sort(rng.choice(header.n_vocab, shape.n_draft_vocab, replace=False)).astype(np.int64)
    return out


def write_head(
    target: str | os.PathLike[str],
    out: str | os.PathLike[str],
    shape: RandomHeadShape,
    weights: Mapping[str, Array],
    *,
    half: bool = True,
) -> None:
    """Writes a head for the target: its tokenizer, these weights. half: matrices become F16.

    Raises DuoError: `target` cannot be read, `out` cannot be written.
    """
    header = read_header(target)
    reader = whole_file(target)
    writer = gguf.GGUFWriter(out, "eagle3")
    for field in reader.fields.values():
        if field.name.startswith("tokenizer."):
            is_array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(
                field.name, field.contents(), field.types[0], sub_type=field.types[-1] if is_array else None
            )
    numbers = {
        "context_length": header.n_ctx_train,
        "embedding_length": shape.n_embd,
        "block_count": 1,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "rope.dimension_count": shape.head_dim,
        "target_hidden_size": header.n_embd,
        "vocab_size": header.n_vocab,
    }
    for name, value in numbers.items():
        writer.add_uint32(f"eagle3.{name}", value)
    writer.add_float32("eagle3.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("eagle3.rope.freq_base", 10000.0)
    writer.add_key_value(
        "eagle3.target_layers", list(shape.layers), gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.UINT32
    )
    for name, data in weights.items():
        writer.add_tensor(name, data.astype(np.float16) if half and data.ndim > 1 else data)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    except OSError as e:
        raise DuoError(f"{os.fspath(out)}: could not be written ({e.strerror}); choose another place") from None
    finally:
        writer.close()


def random_head(
    target: str | os.PathLike[str], out: str | os.PathLike[str], *, seed: int, shape: RandomHeadShape | None = None
) -> None:
    """Writes a head with Gaussian noise for weights.

    Raises DuoError: `target` cannot be read, `out` cannot be written; BadValueError: an impossible shape.
    """
    shape = shape or RandomHeadShape()
    if not (shape.own_embedding and shape.own_output) and shape.n_embd != read_header(target).n_embd:
        raise BadValueError("a head that uses its target's matrices must be as wide as the target")
    write_head(target, out, shape, random_weights(target, shape, seed))
