"""An MTP layer in PyTorch, as llama.cpp computes that of a glm4moe: it reads a token and the state before it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from duo.train.layers import RMSNorm
from duo.train.mixture import Mixture, mixture_layer


class MtpLayer(nn.Module):
    """Embedding and output matrix are the target's, which is not trained here."""

    def __init__(self, target: Mixture) -> None:
        super().__init__()
        s = target.sizes
        self._target = [target]  # in a list, so that its weights are not this module's
        self.enorm, self.hnorm = RMSNorm(s.n_embd, s.eps), RMSNorm(s.n_embd, s.eps)
        self.eh_proj = nn.Linear(2 * s.n_embd, s.n_embd, bias=False)
        self.layer = mixture_layer(s)
        self.head_norm = RMSNorm(s.n_embd, s.eps)

    @property
    def target(self) -> Mixture:
        return self._target[0]

    def steps(self, tokens: Tensor, states: Tensor, n_steps: int) -> Iterator[Tensor]:
        """States of a head that goes on from its own ones, as in drafting (`Eagle3Head.steps`).

        tokens [batch, n]; states [batch, n, n_embd]: the target's, of the same positions. The state of step i at row r,
        [batch, n - 1, n_embd], is that of token r + 1 + i; its logits are about token r + 2 + i. The last i rows hold
        nothing of use.
        """
        state = states[:, :-1]
        own: list[tuple[Tensor, Tensor]] = []
        for i in range(n_steps):
            token = F.pad(tokens[:, 1 + i :], (0, i))
            state = self.read(token, state, 1 + i, own)
            yield state

    def read(self, tokens: Tensor, states: Tensor, first: int, own: list[tuple[Tensor, Tensor]]) -> Tensor:
        """New states of rows (token, state before it) at positions first, first + 1, ..."""
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        x = self.eh_proj(self.pairs(tokens, states))
        return self.head_norm(self.layer(x, positions, self.target.freqs, own))

    def pairs(self, tokens: Tensor, states: Tensor) -> Tensor:
        """What `eh_proj` reads."""
        return torch.cat((self.enorm(self.target.embedding(tokens)), self.hnorm(states)), -1)

    def logits(self, states: Tensor) -> Tensor:
        return self.target.output(states).float()
