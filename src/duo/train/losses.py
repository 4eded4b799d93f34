"""Cross-entropy to the teacher's distribution, of which only the most probable tokens are known."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

LEAST = 1e-6  # a share of probability that counts as nothing
NOTHING = -1e4  # its logarithm; minus infinity would make the gradient of a row without columns NaN


def soft_loss(logits: Tensor, ids: Tensor, log_p: Tensor, mask: Tensor) -> Tensor:
    """Mean over the rows of `mask` of the cross-entropy to the teacher's softmax, in nats.

    logits [..., n]; ids [..., k]: the teacher's best tokens as columns of `logits`, -1: no such column; log_p [..., k]:
    their log-probabilities; mask [...]: rows that count.

    The tokens that the teacher did not list share one bucket, in the model's softmax and in the teacher's.
    Renormalising the listed ones instead would teach the model to be too sure. Of the teacher's tokens without a
    column nothing is asked, as EAGLE-3 restricts the teacher's softmax to the draft vocabulary. A row counts by the
    share of the teacher's probability that has columns.
    """
    has_column = ids >= 0
    p = log_p.float().exp()
    listed = p.sum(-1).clamp(max=1.0)
    p = p * has_column
    here = p.sum(-1)
    rest = (1.0 - listed) * (here / listed.clamp(min=LEAST))  # of tokens that were not listed and have columns
    log_q = logits.gather(-1, ids.clamp(min=0)) - logits.logsumexp(-1, keepdim=True)
    q_here = log_q.masked_fill(~has_column, NOTHING).logsumexp(-1)
    log_q_rest = torch.log1p(-q_here.exp().clamp(max=1.0 - LEAST))
    loss = -(p * log_q.masked_fill(~has_column, 0.0)).sum(-1) - rest * log_q_rest
    weight = (here + rest) * mask
    return torch.where(mask, loss, 0.0).sum() / weight.sum().clamp(min=LEAST)


def columns_of(ids: Tensor, column_of: Tensor | None) -> Tensor:
    """Token ids as columns of a draft vocabulary; -1: it lacks the token. column_of: by token; None: they are equal."""
    return ids.long() if column_of is None else column_of[ids.long()]


def hits(logits: Tensor, following: Tensor, column_of: Tensor | None) -> Tensor:
    """Whether the most probable token is `following`."""
    return logits.argmax(-1) == columns_of(following, column_of)


def shifted(x: Tensor, n: int, value: int = 0) -> Tensor:
    """x [batch, rows, ...] with its rows moved n to the front; `value` behind them."""
    pad = [0, 0] * (x.ndim - 2) + [0, n]
    return F.pad(x[:, n:], pad, value=value)
