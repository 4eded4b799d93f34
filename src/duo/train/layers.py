"""Parts of llama-shaped networks in PyTorch, with the layout of llama.cpp: weights [out][in], interleaved RoPE."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / rms(x) * weight, along the last axis, in 32 bits."""

    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, n_embd: int, n_ff: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(n_embd, n_ff, bias=False), nn.Linear(n_embd, n_ff, bias=False)
        self.down = nn.Linear(n_ff, n_embd, bias=False)

    def hidden(self, x: Tensor) -> Tensor:
        """What `down` reads."""
        return F.silu(self.gate(x)) * self.up(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.hidden(x))


def frequencies(n_rot: int, base: float, factors: Tensor | None = None) -> Tensor:
    """Angles per position [n_rot / 2]; factors: llama.cpp's rope_freqs, which divide them."""
    angles = base ** (-torch.arange(0, n_rot, 2, dtype=torch.float32) / n_rot)
    return angles if factors is None else angles / factors


def rope(x: Tensor, positions: Tensor, freqs: Tensor) -> Tensor:
    """Turns the neighbours x[2i], x[2i + 1] by position * freqs[i] (ggml's GGML_ROPE_TYPE_NORMAL).

    x: [..., rows, n_head_dim], of which the first 2 * len(freqs) are turned; positions: [rows].
    """
    angles = positions.float()[:, None] * freqs
    cos, sin = angles.cos(), angles.sin()
    n_rot = 2 * freqs.shape[0]
    even, odd = x[..., 0:n_rot:2].float(), x[..., 1:n_rot:2].float()
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., n_rot:]), -1)


def heads(x: Tensor, n_head: int) -> Tensor:
    """[batch, rows, n_head * n] -> [batch, n_head, rows, n]."""
    return x.unflatten(-1, (n_head, -1)).transpose(1, 2)


def start_matrices(model: nn.Module, seed: int, n_branches: int) -> None:
    """Gaussian matrices; those that end a branch of the residual are smaller, as in GPT-2 (2 branches per layer)."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        if p.ndim == 2:
            scale = 0.02 if name.startswith("embedding") else p.shape[1] ** -0.5
            if name.endswith(("down.weight", "attn_output.weight")):
                scale /= n_branches**0.5
            with torch.no_grad():
                p.copy_(torch.randn(p.shape, generator=generator) * scale)


def attend(q: Tensor, own: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Attention of a head that goes on from its own states: q [batch, heads, rows, n], own: keys and values of each
    step so far. Row r sees the true rows 0 ... r (step 0) and, of each later step, its own row alone."""
    (k, v), *later = own
    if not later:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    n = q.shape[-2]
    scores = q @ k.transpose(-1, -2)
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(future, float("-inf"))
    scores = torch.cat((scores, *((q * k_i).sum(-1, keepdim=True) for k_i, _ in later)), -1)
    weights = (scores.float() * q.shape[-1] ** -0.5).softmax(-1).to(v.dtype)
    mixed = weights[..., :n] @ v
    for i, (_, v_i) in enumerate(later):
        mixed = mixed + weights[..., n + i : n + i + 1] * v_i
    return mixed
