"""What a mixture learns: a dense model's distribution; and what its MTP layer learns: the mixture's own."""

from __future__ import annotations

import torch
from torch import Tensor

from duo.train.dataset import Batch
from duo.train.draft_task import DraftTask
from duo.train.head_task import HeadTask
from duo.train.mixture import Mixture
from duo.train.mtp import MtpLayer


class MixtureTask(DraftTask):
    """As a draft is distilled, with experts of equal load."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__(mixture)
        self._experts = mixture.experts()

    def loss(self, batch: Batch) -> Tensor:
        for e in self._experts:
            e.balance()  # by the step before
        return super().loss(batch)


class MtpTask(HeadTask):
    """As a head that reads the mixture's last states, and can draft every token."""

    model: MtpLayer

    def __init__(self, layer: MtpLayer, n_steps: int) -> None:
        super().__init__(layer, n_steps)
        layer.target.requires_grad_(False).eval()
        self._experts = layer.experts()

    def _column_of(self) -> None:
        return None

    @torch.no_grad()
    def _states(self, batch: Batch) -> Tensor:
        return self.model.target.to(batch.tokens.device).states(batch.tokens)

    def loss(self, batch: Batch) -> Tensor:
        for e in self._experts:
            e.balance()
        return super().loss(batch)
