"""Distillation: a small llama learns the target's distribution."""

from __future__ import annotations

from torch import Tensor

from duo.train.acceptance import Acceptance, runs
from duo.train.dataset import Batch
from duo.train.llama import Llama
from duo.train.losses import hits, shifted, soft_loss

N_POSITIONS = 5  # of the acceptance that is reported


class DraftTask:
    """The draft at row r against the teacher at row r."""

    n_positions = N_POSITIONS

    def __init__(self, llama: Llama) -> None:
        self.model = llama

    def loss(self, batch: Batch) -> Tensor:
        return soft_loss(self.model(batch.tokens), batch.top_ids, batch.top_log_p, batch.behind(0))

    def acceptance(self, batch: Batch) -> Acceptance:
        """Chains of guesses from every token that the target wrote on."""
        right = hits(self.model(batch.tokens), shifted(batch.tokens, 1), None)
        acceptance = Acceptance.none(self.n_positions)
        for row, n_given, length in zip(right, batch.n_given.tolist(), batch.lengths.tolist(), strict=True):
            acceptance += runs(row[max(0, n_given - 1) : length - 1].tolist(), self.n_positions)
        return acceptance
