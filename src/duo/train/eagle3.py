"""The EAGLE-3 head in PyTorch, as llama.cpp computes it (src/models/eagle3.cpp), and its training-time test.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test" (2025): step 0
sees features of the target; step i sees the head's own states of step i - 1, as in drafting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from duo.train.layer_shape import LayerShape
from duo.train.layers import RMSNorm, SwiGLU, attend, frequencies, heads, rope


@dataclass(frozen=True, kw_only=True)
class Eagle3Shape(LayerShape):
    """Sizes of a head. target_layers: those whose inputs it reads; n_rows: tokens that it can draft."""

    n_rows: int
    n_embd_target: int
    target_layers: tuple[int, int, int]

    @property
    def n_features(self) -> int:
        return len(self.target_layers) * self.n_embd_target

    @property
    def n_products(self) -> int:
        """Multiply-adds of one step of drafting; `fc` runs once per verified row only."""
        n, wide = self.n_embd, 2 * self.n_embd
        attention = (self.n_head + 2 * self.n_head_kv) * self.n_head_dim * wide + self.n_head * self.n_head_dim * n
        return attention + 3 * n * self.n_ff + n * self.n_rows

    @property
    def n_parameters(self) -> int:
        return self.n_products + self.n_features * self.n_embd + self.n_vocab * self.n_embd + 4 * self.n_embd


class Eagle3Head(nn.Module):
    """One layer over (token, state) rows. The state is made of features, or is the head's own of the step before."""

    def __init__(self, shape: Eagle3Shape) -> None:
        super().__init__()
        self.shape = s = shape
        n, n_q, n_kv = s.n_embd, s.n_head * s.n_head_dim, s.n_head_kv * s.n_head_dim
        self.fc = nn.Linear(s.n_features, n, bias=False)
        self.embedding = nn.Embedding(s.n_vocab, n)
        self.attn_norm, self.attn_norm_2 = RMSNorm(n, s.eps), RMSNorm(n, s.eps)
        self.attn_q = nn.Linear(2 * n, n_q, bias=False)
        self.attn_k, self.attn_v = nn.Linear(2 * n, n_kv, bias=False), nn.Linear(2 * n, n_kv, bias=False)
        self.attn_output = nn.Linear(n_q, n, bias=False)
        self.ffn_norm, self.ffn = RMSNorm(n, s.eps), SwiGLU(n, s.n_ff)
        self.output_norm, self.output = RMSNorm(n, s.eps), nn.Linear(n, s.n_rows, bias=False)
        self.register_buffer("freqs", frequencies(s.n_head_dim, s.rope_base), persistent=False)
        # The target's ids of the rows of `output`.
        self.register_buffer("d2t", torch.arange(s.n_rows, dtype=torch.int64))

    def logits(self, states: Tensor) -> Tensor:
        """[..., n_embd] -> [..., n_rows], 32 bits."""
        return self.output(self.output_norm(states)).float()

    def steps(self, tokens: Tensor, features: Tensor, n_steps: int) -> Iterator[Tensor]:
        """States of the training-time test.

        tokens [batch, n], features [batch, n, n_features], of the same positions. The state of step i at row r,
        [batch, n - 1, n_embd], is that of token r + 1 + i at the end of a chain: features up to position r are true,
        states behind it are the head's own. Its logits are about token r + 2 + i. Rows that have no such token (the
        last i) hold nothing of use.
        """
        state = self.fc(features[:, :-1])
        own: list[tuple[Tensor, Tensor]] = []  # keys and values of each step; a row sees its own chain
        for i in range(n_steps):  # the token of each row's chain is one further on
            token = F.pad(tokens[:, 1 + i :], (0, i))
            state = self._layer(token, state, 1 + i, own)
            yield state

    def read(self, tokens: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Plain evaluation of rows (token, state) at positions 1, 2, ...: their new states and logits.

        tokens [batch, n], states [batch, n, n_embd]: what llama.cpp's decoder gets.
        """
        state = self._layer(tokens, states, 1, [])
        return state, self.logits(state)

    def _layer(self, token: Tensor, state: Tensor, first: int, own: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Rows at positions first, first + 1, ...; own: of the steps before, to which this one is added."""
        s = self.shape
        x = torch.cat((self.attn_norm(self.embedding(token)), self.attn_norm_2(state)), -1)
        positions = torch.arange(first, first + token.shape[1], device=token.device)
        n_share = s.n_head // s.n_head_kv
        q = rope(heads(self.attn_q(x), s.n_head), positions, self.freqs)
        k = rope(heads(self.attn_k(x), s.n_head_kv), positions, self.freqs)
        v = heads(self.attn_v(x), s.n_head_kv)
        own.append((k.repeat_interleave(n_share, 1), v.repeat_interleave(n_share, 1)))
        middle = state + self.attn_output(attend(q, own).transpose(1, 2).flatten(-2))
        return middle + self.ffn(self.ffn_norm(middle))
