"""A llama with experts in PyTorch, as llama.cpp computes GLM-4.5's layout (src/models/glm4-moe.cpp).

Every token has a shared expert and the few experts that its router chooses. All experts are computed, and those that
were not chosen are multiplied by zero: with experts this small that is faster than gathering rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from duo.train.layers import SwiGLU
from duo.train.llama import Layer, Llama, LlamaShape

BALANCE = 1e-3  # step of an expert's bias


@dataclass(frozen=True, kw_only=True)
class MixtureShape(LlamaShape):
    """n_ff: of the dense layers at the beginning; n_ff_expert: of one expert; n_shared: of them that all tokens use."""

    n_dense: int
    n_expert: int
    n_used: int
    n_ff_expert: int
    n_shared: int

    def keys(self, n_layer: int) -> dict[str, int | float]:
        return super().keys(n_layer) | {
            "leading_dense_block_count": self.n_dense,
            "expert_count": self.n_expert,
            "expert_used_count": self.n_used,
            "expert_feed_forward_length": self.n_ff_expert,
            "expert_shared_count": self.n_shared,
            "expert_gating_func": 2,  # sigmoid
            "expert_weights_norm": True,
            "expert_weights_scale": float(self.n_used),
        }


class Experts(nn.Module):
    """The routed experts of a layer, and its shared one. `down(silu(gate(x)) * up(x))` each."""

    def __init__(self, s: MixtureShape) -> None:
        super().__init__()
        self.n_used = s.n_used
        self.router = nn.Linear(s.n_embd, s.n_expert, bias=False)
        self.gate = nn.Parameter(torch.zeros(s.n_expert, s.n_ff_expert, s.n_embd))
        self.up = nn.Parameter(torch.zeros(s.n_expert, s.n_ff_expert, s.n_embd))
        self.down = nn.Parameter(torch.zeros(s.n_expert, s.n_embd, s.n_ff_expert))
        self.shared = SwiGLU(s.n_embd, s.n_shared * s.n_ff_expert)
        # Added to choose experts, not to weigh them: it is moved until all have the same load (DeepSeek V3).
        self.register_buffer("bias", torch.zeros(s.n_expert))
        self.register_buffer("load", torch.zeros(s.n_expert), persistent=False)

    def weights(self, x: Tensor) -> Tensor:
        """Of each expert: [..., n_expert], n_used on average if it is chosen, 0 if not."""
        with torch.autocast(x.device.type, enabled=False):  # llama.cpp's router has 32 bits
            probs = self.router(x.float()).sigmoid()
        chosen = (probs + self.bias).topk(self.n_used, -1).indices
        mask = torch.zeros_like(probs).scatter(-1, chosen, 1.0)
        if self.training:
            self.load += mask.detach().flatten(0, -2).sum(0)
        probs = probs * mask
        return self.n_used * probs / probs.sum(-1, keepdim=True)

    def hidden(self, x: Tensor) -> Tensor:
        """What `down` reads, times the experts' weights: [..., n_expert * n_ff_expert]."""
        weights = self.weights(x).repeat_interleave(self.gate.shape[1], -1)
        return F.silu(F.linear(x, self.gate.flatten(0, 1))) * F.linear(x, self.up.flatten(0, 1)) * weights

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.hidden(x), self.down.transpose(0, 1).flatten(1)) + self.shared(x)

    @torch.no_grad()
    def balance(self) -> None:
        """After a step: experts with too many tokens become less likely, the others more likely."""
        self.bias += BALANCE * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


def experts_of(model: nn.Module) -> list[Experts]:
    """Of all its layers that have some."""
    return [m for m in model.modules() if isinstance(m, Experts)]


def mixture_layer(s: MixtureShape) -> Layer:
    """A layer whose feed-forward part has experts."""
    layer = Layer(s)
    layer.ffn = Experts(s)
    return layer


class Mixture(Llama):
    """tokens [batch, n] -> logits [batch, n, n_vocab], 32 bits."""

    def __init__(self, shape: MixtureShape) -> None:
        super().__init__(shape)
        self.sizes = shape
        for i in range(shape.n_dense, shape.n_layer):
            self.layers[i] = mixture_layer(shape)
