"""DFlash and DSpark heads with random weights; and a pair whose head guesses right.

The format is what llama.cpp reads (src/models/dflash.cpp). RoPE is the kind that turns halves.

The right pair: the target says t, f(t), f(f(t)), ... for a permutation f whose eighth power changes nothing, so each
token of its text is the one eight positions before. Its layers add next to nothing, so their inputs are embeddings. A
mask of the head attends to the position eight before the one that it stands for, and to no other, and its row becomes
the embedding that lies there. So it is right with the target's states in their places, and wrong if they are shifted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf_files import BOOL, F32, STR, U32, Array, Value, header_of, tokens_of, write

PERIOD = 8
MASK = 5  # a token that no text has


@dataclass(frozen=True)
class BlockShape:
    n_embd: int = 320  # the target's
    n_ff: int = 256
    n_head: int = 5
    n_head_kv: int = 5
    head_dim: int = 64
    n_layer: int = 2
    n_block: int = 8
    layers: tuple[int, ...] = (1, 2, 3)  # of the target, whose inputs it reads
    n_draft_vocab: int | None = None
    own_embedding: bool = True
    own_output: bool = True
    n_rank: int = 0  # DSpark: of the matrix that a guess takes from the one before
    anchored: bool = True  # DSpark: a row guesses the token after its own


def random_weights(shape: BlockShape, n_vocab: int, seed: int = 1) -> dict[str, Array]:
    """Tensors by name, rows first."""
    s, rng = shape, np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns)) / columns**0.5

    out: dict[str, Array] = {
        "fc.weight": matrix(s.n_embd, len(s.layers) * s.n_embd),
        "enc.output_norm.weight": np.ones(s.n_embd),
        "output_norm.weight": np.ones(s.n_embd),
    }
    for i in range(s.n_layer):
        layer = {
            "attn_norm": np.ones(s.n_embd),
            "attn_q": matrix(s.n_head * s.head_dim, s.n_embd),
            "attn_k": matrix(s.n_head_kv * s.head_dim, s.n_embd),
            "attn_v": matrix(s.n_head_kv * s.head_dim, s.n_embd),
            "attn_output": matrix(s.n_embd, s.n_head * s.head_dim),
            "attn_q_norm": np.ones(s.head_dim),
            "attn_k_norm": np.ones(s.head_dim),
            "ffn_norm": np.ones(s.n_embd),
            "ffn_gate": matrix(s.n_ff, s.n_embd),
            "ffn_up": matrix(s.n_ff, s.n_embd),
            "ffn_down": matrix(s.n_embd, s.n_ff),
        }
        out |= {f"blk.{i}.{name}.weight": x for name, x in layer.items()}
    if s.own_embedding:
        out["token_embd.weight"] = rng.standard_normal((n_vocab, s.n_embd))
    if s.own_output:
        out["output.weight"] = 4 * matrix(s.n_draft_vocab or n_vocab, s.n_embd)
    if s.n_rank:
        out["markov_w1.weight"] = 2 * matrix(n_vocab, s.n_rank)
        out["markov_w2.weight"] = 2 * matrix(s.n_draft_vocab or n_vocab, s.n_rank)
    if s.n_draft_vocab is not None:
        out["d2t"] = np.sort(rng.choice(n_vocab, s.n_draft_vocab, replace=False))
    return out


def write_head(target: Path, to: Path, shape: BlockShape, weights: dict[str, Array], *, half: bool = False) -> Path:
    """A head with the target's tokenizer and these weights. half: matrices become F16."""
    s = shape
    header = {n: v for n, v in header_of(target).items() if n.startswith("tokenizer.")}
    numbers = {
        "context_length": 1024,
        "embedding_length": s.n_embd,
        "block_count": s.n_layer,
        "feed_forward_length": s.n_ff,
        "attention.head_count": s.n_head,
        "attention.head_count_kv": s.n_head_kv,
        "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim,
        "rope.dimension_count": s.head_dim,
        "block_size": s.n_block,
        "vocab_size": len(tokens_of(target)),
    }
    header |= {f"dflash.{name}": (U32, n) for name, n in numbers.items()}
    header |= {
        "general.architecture": (STR, "dflash"),
        "tokenizer.ggml.mask_token_id": (U32, MASK),
        "dflash.target_layers": (U32, list(s.layers)),
        "dflash.rope.freq_base": (F32, 10000.0),
        "dflash.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    }
    if s.n_rank:
        header |= {"dflash.sample_from_anchor": (BOOL, s.anchored), "dflash.has_confidence_head": (BOOL, False)}
    kinds = {name: np.int64 if name == "d2t" else np.float16 if half and x.ndim > 1 else np.float32
             for name, x in weights.items()}  # fmt: skip
    return write(to, header, [(name, np.ascontiguousarray(x, kinds[name]), None) for name, x in weights.items()])


def random_head(target: Path, to: Path, shape: BlockShape | None = None, seed: int = 1) -> Path:
    shape = shape or BlockShape()
    return write_head(target, to, shape, random_weights(shape, len(tokens_of(target)), seed), half=True)


COPIES = BlockShape(n_embd=128, n_ff=64, n_head=2, n_head_kv=2, n_layer=1, layers=(0, 1))


def follower(n_vocab: int) -> Array:
    """The token after each token: [n_vocab]. Only ordinary tokens come, in circles of PERIOD."""
    order = np.random.default_rng(5).permutation(np.arange(300, n_vocab))
    order = order[: order.size // PERIOD * PERIOD].reshape(-1, PERIOD)
    after = np.resize(order, n_vocab)
    after[order] = np.roll(order, -1, axis=1)
    return after


def _embedding(n_vocab: int) -> Array:
    """Its last column is the same for all tokens. [n_vocab, n_embd]"""
    x = np.random.default_rng(6).standard_normal((n_vocab, COPIES.n_embd))
    x[:, -1] = 4.0
    return x


def _readable(x: Array) -> Array:
    """An output matrix of which each row finds that embedding."""
    out = 0.2 * x
    out[:, -1] = 0.0
    return out


def circling_target(source: Path, to: Path) -> Path:
    """The right pair's target, with the tokenizer of `source`."""
    n, n_vocab = COPIES.n_embd, len(tokens_of(source))
    rng = np.random.default_rng(7)
    header: dict[str, Value] = {k: v for k, v in header_of(source).items() if k.startswith("tokenizer.")}
    numbers = {"context_length": 1024, "embedding_length": n, "block_count": 2, "feed_forward_length": n,
               "attention.head_count": 2, "attention.head_count_kv": 2, "vocab_size": n_vocab}  # fmt: skip
    header |= {f"llama.{name}": (U32, x) for name, x in numbers.items()}
    header |= {"general.architecture": (STR, "llama"), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5)}
    x = _embedding(n_vocab)
    output = np.zeros_like(x)
    output[follower(n_vocab)] = _readable(x)
    weights = {"token_embd.weight": x, "output.weight": output, "output_norm.weight": np.ones(n)}
    for i in range(2):
        for kind in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            adds = kind in ("attn_output", "ffn_down")
            weights[f"blk.{i}.{kind}.weight"] = rng.standard_normal((n, n)) / n**0.5 * (0.01 if adds else 1.0)
        weights |= {f"blk.{i}.{kind}.weight": np.ones(n) for kind in ("attn_norm", "ffn_norm")}
    return write(to, header, [(name, w.astype(np.float32), None) for name, w in weights.items()])


def copying_head(target: Path, to: Path) -> Path:
    """The right pair's head."""
    s, n_vocab = COPIES, len(tokens_of(target))
    n, half, n_pairs = s.n_embd, s.head_dim // 2, 8
    w = random_weights(s, n_vocab)
    angles = PERIOD * 10000.0 ** (-np.arange(n_pairs) / half)
    key, query = np.zeros(s.head_dim), np.zeros(s.head_dim)
    key[:n_pairs] = 1.0
    query[:n_pairs], query[half : half + n_pairs] = np.cos(angles), -np.sin(angles)
    for name, pattern in (("attn_k", key), ("attn_q", query)):
        w[f"blk.0.{name}.weight"] = np.outer(np.tile(pattern, s.n_head), np.eye(n)[-1])
        w[f"blk.0.{name}_norm.weight"] = np.full(s.head_dim, 4.0)
    w["fc.weight"] = np.concatenate([np.eye(n) / 2, np.eye(n) / 2], axis=1)
    w["blk.0.attn_v.weight"] = w["blk.0.attn_output.weight"] = np.eye(n)
    w["blk.0.ffn_down.weight"] = np.zeros((n, s.n_ff))
    x = _embedding(n_vocab)
    w["output.weight"] = _readable(x)
    x[MASK, :-1] = 0.0
    w["token_embd.weight"] = x
    return write_head(target, to, s, w)
