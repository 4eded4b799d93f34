"""Sizes of a llama-shaped layer, and the keys of a file that say them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """n_head_dim: of queries, keys and values alike."""

    n_embd: int
    n_head: int
    n_head_kv: int
    n_head_dim: int
    n_ff: int
    n_vocab: int
    eps: float = 1e-5
    rope_base: float = 10000.0
    n_ctx: int = 2048

    def keys(self, n_layer: int) -> dict[str, int | float]:
        """Header keys of a model with so many of these layers, without the architecture's name (gguf-py)."""
        return {
            "context_length": self.n_ctx,
            "embedding_length": self.n_embd,
            "block_count": n_layer,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.key_length": self.n_head_dim,
            "attention.value_length": self.n_head_dim,
            "attention.layer_norm_rms_epsilon": self.eps,
            "rope.dimension_count": self.n_head_dim,
            "rope.freq_base": self.rope_base,
            "vocab_size": self.n_vocab,
        }
