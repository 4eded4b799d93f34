"""Small encoders with random weights, as models for embeddings and reranking are: BERT with a vocabulary of letters."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter

N_EMBD, N_HEAD, N_FF, N_LAYER, N_CTX = 64, 4, 128, 2, 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# As converted by llama.cpp: a word begins with U+2581, its other parts with nothing.
TOKENS = [*SPECIAL, *(f"\u2581{c}" for c in string.ascii_lowercase), *string.ascii_lowercase]


def bert(to: Path, *, reranks: bool = False, pooling: int = 2, seed: int = 1, separator: str = "seperator") -> Path:
    """pooling: llama.cpp's number, 2: the vector of [CLS]. reranks: with a head that gives a score. separator: how the
    header spells the key of the token; the default is llama.cpp's spelling."""
    rng = np.random.default_rng(seed)
    w = GGUFWriter(to, "bert")
    w.add_context_length(N_CTX)
    w.add_embedding_length(N_EMBD)
    w.add_block_count(N_LAYER)
    w.add_feed_forward_length(N_FF)
    w.add_head_count(N_HEAD)
    w.add_layer_norm_eps(1e-12)
    w.add_causal_attention(False)
    w.add_uint32("bert.pooling_type", 4 if reranks else pooling)
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("default")
    w.add_token_list(TOKENS)
    w.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    w.add_token_type_count(2)
    for name, token in (
        ("bos", 2),
        ("eos", 3),
        ("cls", 2),
        (separator, 3),
        ("unknown", 1),
        ("padding", 0),
        ("mask", 4),
    ):
        w.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    w.add_bool("tokenizer.ggml.add_bos_token", True)
    w.add_bool("tokenizer.ggml.add_eos_token", True)

    def add(name: str, *shape: int, scale: float = 0.3, dtype: type = np.float16) -> None:
        w.add_tensor(name, (rng.standard_normal(shape) * scale).astype(dtype))

    def norm(name: str) -> None:
        w.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
        add(f"{name}.bias", N_EMBD, scale=0.05, dtype=np.float32)

    add("token_embd.weight", len(TOKENS), N_EMBD)
    add("position_embd.weight", N_CTX, N_EMBD, dtype=np.float32)
    add("token_types.weight", 2, N_EMBD, dtype=np.float32)
    norm("token_embd_norm")
    for i in range(N_LAYER):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{part}.weight", N_EMBD, N_EMBD)
            add(f"blk.{i}.{part}.bias", N_EMBD, dtype=np.float32)
        add(f"blk.{i}.ffn_up.weight", N_FF, N_EMBD)
        add(f"blk.{i}.ffn_up.bias", N_FF, dtype=np.float32)
        add(f"blk.{i}.ffn_down.weight", N_EMBD, N_FF)
        add(f"blk.{i}.ffn_down.bias", N_EMBD, dtype=np.float32)
        norm(f"blk.{i}.attn_output_norm")
        norm(f"blk.{i}.layer_output_norm")
    if reranks:
        add("cls.weight", N_EMBD, N_EMBD, dtype=np.float32)
        add("cls.bias", N_EMBD, dtype=np.float32)
        add("cls.output.weight", 1, N_EMBD, dtype=np.float32)
        add("cls.output.bias", 1, dtype=np.float32)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return to


def alike(a: Any, b: Any) -> bool:
    """Vectors of the same directions and lengths, but for the rounding of other kernels."""
    x, y = np.array(a, np.float64), np.array(b, np.float64)
    cosine = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
    ratio = np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
    return bool((cosine > 0.999).all() and (abs(ratio - 1) < 0.02).all())
