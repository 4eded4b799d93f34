"""Mixtures with random weights. If wanted, neighbouring tokens share experts to a given degree, as in texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks import models
from benchmarks.mixture_file import MixtureShape, begun

Array = npt.NDArray[np.float32]

N_GROUP = 64  # ids of tokens whose embeddings are alike
N_SAMPLES, N_HALVINGS = 200, 12


def likeness(n_distinct: float, n_tokens: int, shape: MixtureShape) -> float:
    """The correlation of tokens' router logits with which n_tokens tokens have so many distinct experts, on average."""
    rng = np.random.default_rng(3)
    common = rng.standard_normal((N_SAMPLES, 1, shape.n_expert))
    own = rng.standard_normal((N_SAMPLES, n_tokens, shape.n_expert))

    def count(r: float) -> float:
        best = np.argsort(r**0.5 * common + (1 - r) ** 0.5 * own, axis=2)[:, :, -shape.n_used :]
        return float(np.mean([len(np.unique(x)) for x in best]))

    low, high = 0.0, 1.0
    if not count(high) <= n_distinct <= count(low):
        raise SystemExit(f"{n_tokens} tokens can have {count(high):.0f} to {count(low):.1f} distinct experts")
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if count(middle) > n_distinct else (low, middle)
    return (low + high) / 2


def neighbours(n: int, n_tokens: int) -> list[list[int]]:
    """n passages of tokens that are alike; none comes twice within N_GROUP tokens that begin at a multiple of it."""
    rng = np.random.default_rng(2)
    n_rows = -(-n_tokens // N_GROUP)
    firsts = rng.integers(1, 2000 // N_GROUP, n) * N_GROUP
    return [np.concatenate([f + rng.permutation(N_GROUP) for _ in range(n_rows)])[:n_tokens].tolist() for f in firsts]


def made(out: Path, shape: MixtureShape, alike: float | None = None) -> Path:
    """The model as f16, its routers as f32. A file from an earlier run is used again. alike: the correlation of tokens
    of a group; then layers add little to the hidden states, which are mostly those of the token. None: tokens are drawn
    one by one, and so are their experts."""
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    writer, n_vocab = begun(part, shape)
    rng = np.random.default_rng(1)
    for name, size in _tensors(n_vocab, shape).items():
        x: Array = np.ones(size, np.float32)
        if len(size) > 1:
            x = rng.standard_normal(size, np.float32) / np.float32(size[-1] ** 0.5)
        if alike is not None and name == "token_embd.weight":
            x = _grouped(x, alike, rng) * np.float32(size[-1] ** 0.5)
        elif alike is not None and ("attn_output" in name or "ffn_down" in name):
            x *= np.float32(0.1)
        writer.add_tensor(name, x.astype(np.float32 if len(size) == 1 or "gate_inp" in name else np.float16))
    return models.written(writer, part, out)


def _grouped(x: Array, alike: float, rng: np.random.Generator) -> Array:
    """Rows with a part that the rows of a group share."""
    of_group = rng.standard_normal((-(-len(x) // N_GROUP), x.shape[1]), np.float32) / np.float32(x.shape[1] ** 0.5)
    shared = np.repeat(of_group, N_GROUP, axis=0)[: len(x)]
    return np.float32(alike**0.5) * shared + np.float32((1 - alike) ** 0.5) * x


def _tensors(n_vocab: int, s: MixtureShape) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, s.n_embd), "output_norm.weight": (s.n_embd,)}
    for i in range(s.n_layer):
        found |= {
            f"blk.{i}.attn_norm.weight": (s.n_embd,),
            f"blk.{i}.attn_q.weight": (s.n_head * s.n_head_dim, s.n_embd),
            f"blk.{i}.attn_k.weight": (s.n_kv * s.n_head_dim, s.n_embd),
            f"blk.{i}.attn_v.weight": (s.n_kv * s.n_head_dim, s.n_embd),
            f"blk.{i}.attn_output.weight": (s.n_embd, s.n_head * s.n_head_dim),
            f"blk.{i}.attn_q_norm.weight": (s.n_head_dim,),
            f"blk.{i}.attn_k_norm.weight": (s.n_head_dim,),
            f"blk.{i}.ffn_norm.weight": (s.n_embd,),
            f"blk.{i}.ffn_gate_inp.weight": (s.n_expert, s.n_embd),
            f"blk.{i}.ffn_gate_exps.weight": (s.n_expert, s.n_ff, s.n_embd),
            f"blk.{i}.ffn_up_exps.weight": (s.n_expert, s.n_ff, s.n_embd),
            f"blk.{i}.ffn_down_exps.weight": (s.n_expert, s.n_embd, s.n_ff),
        }
    return found
