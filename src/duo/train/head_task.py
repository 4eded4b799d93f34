"""EAGLE-3's training-time test as a task: the head on its own states, as in drafting."""

from __future__ import annotations

import torch
from torch import Tensor

from duo.train.acceptance import Acceptance
from duo.train.dataset import Batch
from duo.train.eagle3 import Eagle3Head
from duo.train.losses import columns_of, hits, shifted, soft_loss

DECAY = 0.8  # weight of a step's loss relative to the step before (EAGLE-3)


class HeadTask:
    """The loss of step i compares row r with the teacher at row r + 1 + i."""

    def __init__(self, head: Eagle3Head, n_steps: int) -> None:
        self.model = head
        self.n_positions = n_steps

    def _column_of(self) -> Tensor | None:
        """By token of the target: its row of the head's output, or -1. None: they are equal."""
        d2t = self.model.d2t
        columns = torch.full((self.model.shape.n_vocab,), -1, dtype=torch.int64, device=d2t.device)
        columns[d2t] = torch.arange(len(d2t), device=d2t.device)
        return columns

    def _states(self, batch: Batch) -> Tensor:
        """What the head reads of the target."""
        assert batch.features is not None
        return batch.features.float()

    def loss(self, batch: Batch) -> Tensor:
        column_of = self._column_of()
        ids = columns_of(batch.top_ids, column_of)
        total, weights = torch.zeros((), device=ids.device), 0.0
        for i, state in enumerate(self.model.steps(batch.tokens, self._states(batch), self.n_positions)):
            here = slice(1 + i, None)  # the teacher's rows
            n = ids.shape[1] - 1 - i
            known = batch.behind(0)[:, here]
            step = soft_loss(self.model.logits(state[:, :n]), ids[:, here], batch.top_log_p[:, here], known)
            total = total + DECAY**i * step
            weights += DECAY**i
        return total / weights

    def acceptance(self, batch: Batch) -> Acceptance:
        """Chains behind every token that the target wrote.

        They are what drafting gives: a guess counts only if those before it were right, and then the token that it
        follows is the text's own."""
        column_of = self._column_of()
        following = shifted(batch.tokens, 2)[:, : batch.tokens.shape[1] - 1]
        rows = torch.arange(following.shape[1], device=following.device)
        counted = (rows + 2 >= batch.n_given[:, None]) & batch.behind(1 + self.n_positions)[:, :-1]
        right = counted.clone()
        n_right = []
        for i, state in enumerate(self.model.steps(batch.tokens, self._states(batch), self.n_positions)):
            right &= hits(self.model.logits(state), shifted(following, i), column_of)
            n_right.append(int(right.sum()))
        return Acceptance(int(counted.sum()), tuple(n_right))
