"""A small llama in PyTorch, as llama.cpp computes it (src/models/llama.cpp): what `duo train-draft` trains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from duo.train.layer_shape import LayerShape
from duo.train.layers import RMSNorm, SwiGLU, attend, frequencies, heads, rope


@dataclass(frozen=True, kw_only=True)
class LlamaShape(LayerShape):
    """Sizes of a llama. tied: `output` is the embedding."""

    n_layer: int
    tied: bool = False

    @property
    def n_products(self) -> int:
        """Multiply-adds per token, without attention over the context."""
        attention = (2 * self.n_head + 2 * self.n_head_kv) * self.n_head_dim * self.n_embd
        return self.n_layer * (attention + 3 * self.n_embd * self.n_ff) + self.n_embd * self.n_vocab

    @property
    def n_parameters(self) -> int:
        norms = (2 * self.n_layer + 1) * self.n_embd
        return self.n_products + norms + (0 if self.tied else self.n_embd * self.n_vocab)


class Layer(nn.Module):
    def __init__(self, s: LlamaShape) -> None:
        super().__init__()
        n, n_q, n_kv = s.n_embd, s.n_head * s.n_head_dim, s.n_head_kv * s.n_head_dim
        self.n_head, self.n_head_kv = s.n_head, s.n_head_kv
        self.attn_norm, self.ffn_norm = RMSNorm(n, s.eps), RMSNorm(n, s.eps)
        self.attn_q, self.attn_k = nn.Linear(n, n_q, bias=False), nn.Linear(n, n_kv, bias=False)
        self.attn_v, self.attn_output = nn.Linear(n, n_kv, bias=False), nn.Linear(n_q, n, bias=False)
        self.ffn = SwiGLU(n, s.n_ff)

    def attended(
        self, x: Tensor, positions: Tensor, freqs: Tensor, own: list[tuple[Tensor, Tensor]] | None = None
    ) -> Tensor:
        """x and what attention adds. own: keys and values of a head's earlier steps, to which these are added
        (`attend`)."""
        y = self.attn_norm(x)
        q = rope(heads(self.attn_q(y), self.n_head), positions, freqs)
        n_share = self.n_head // self.n_head_kv
        k = rope(heads(self.attn_k(y), self.n_head_kv), positions, freqs).repeat_interleave(n_share, 1)
        v = heads(self.attn_v(y), self.n_head_kv).repeat_interleave(n_share, 1)
        own = [] if own is None else own
        own.append((k, v))
        return x + self.attn_output(attend(q, own).transpose(1, 2).flatten(-2))

    def forward(
        self, x: Tensor, positions: Tensor, freqs: Tensor, own: list[tuple[Tensor, Tensor]] | None = None
    ) -> Tensor:
        x = self.attended(x, positions, freqs, own)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    """tokens [batch, n] -> logits [batch, n, n_vocab], 32 bits."""

    def __init__(self, shape: LlamaShape, rope_factors: Tensor | None = None) -> None:
        super().__init__()
        self.shape = s = shape
        self.embedding = nn.Embedding(s.n_vocab, s.n_embd)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.n_layer))
        self.output_norm = RMSNorm(s.n_embd, s.eps)
        self.output = nn.Linear(s.n_embd, s.n_vocab, bias=False)
        if s.tied:
            self.output.weight = self.embedding.weight
        self.register_buffer("rope_factors", rope_factors, persistent=False)
        self.register_buffer("freqs", frequencies(s.n_head_dim, s.rope_base, rope_factors), persistent=False)

    def states(self, tokens: Tensor) -> Tensor:
        """What the output matrix reads: [batch, n, n_embd]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, positions, self.freqs)
        return self.output_norm(x)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.states(tokens)).float()
