"""What a mixture learns: a dense model's distribution; and what its MTP layer learns: the mixture's own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from duo.train.dataset import Batch
from duo.train.draft_task import DraftTask
from duo.train.head_task import HeadTask
from duo.train.mixture import Experts, Mixture, experts_of
from duo.train.mtp import MtpLayer


def balance(experts: Iterable[Experts]) -> None:
    """Before a step: by the load that the step before has brought."""
    for e in experts:
        e.balance()


class MixtureTask(DraftTask):
    """As a draft is distilled, with experts of equal load."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__(mixture)
        self._experts = experts_of(mixture)

    def loss(self, batch: Batch) -> Tensor:
        balance(self._experts)
        return super().loss(batch)


class MtpTask(HeadTask):
    """As a head that reads the mixture's last states, and can draft every token."""

    model: MtpLayer

    def __init__(self, layer: MtpLayer, n_steps: int) -> None:
        super().__init__(layer, n_steps)
        layer.target.requires_grad_(False).eval()
        self._experts = experts_of(layer)

    def _column_of(self) -> None:
        return None

    @torch.no_grad()
    def _states(self, batch: Batch) -> Tensor:
        return self.model.target.to(batch.tokens.device).states(batch.tokens)

    def loss(self, batch: Batch) -> Tensor:
        balance(self._experts)
        return super().loss(batch)
