"""Lessons as batches of tensors, in an order that a seed determines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from duo.errors import BadValueError
from duo.train.lessons import Array, Folder, Kind

Item = tuple[int, int]  # group, text in it


@dataclass(frozen=True)
class Batch:
    """Texts of different lengths, padded with zeros. top_*[b, i] are about the token behind i."""

    tokens: Tensor  # [batch, n], int64
    lengths: Tensor  # [batch]
    n_given: Tensor  # [batch]: tokens that the target did not write
    features: Tensor | None  # [batch, n, n_features], bfloat16
    top_ids: Tensor  # [batch, n, top], int64
    top_log_p: Tensor  # [batch, n, top], float16, nats

    def behind(self, n: int) -> Tensor:
        """Whether the text has a token n places behind each row: [batch, rows]."""
        rows = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return rows + n < self.lengths[:, None]


class Lessons:
    """All lessons of a kind in a folder. They stay on the disk, mapped into memory."""

    def __init__(self, folder: Folder, kind: Kind) -> None:
        """Raises BadValueError: there are none."""
        self._folder, self._kind = folder, kind
        self._group = lru_cache(maxsize=None)(lambda i: folder.lessons(kind, i))
        self.items: list[Item] = []
        self.n_tokens = 0
        for i in folder.groups(kind):
            lengths = np.diff(self._group(i)["starts"])
            self.items += [(i, text) for text in range(len(lengths)) if lengths[text] > 2]
            self.n_tokens += int(lengths.sum())
        if not self.items:
            raise BadValueError(f"{folder.path} has no texts of three tokens or more; give other data")

    def counts(self, n_vocab: int) -> Array:
        """How often each token occurs, or is what the target would choose."""
        counts = np.zeros(n_vocab, np.int64)
        for i in self._folder.groups(self._kind):
            group = self._group(i)
            counts += np.bincount(group["tokens"], minlength=n_vocab)
            counts += np.bincount(group["top_ids"][:, 0], minlength=n_vocab)
        return counts

    def epoch(self, seed: int, number: int, n_tokens: int) -> Iterator[list[Item]]:
        """All items in the order of this epoch, with about n_tokens tokens together."""
        order = np.random.default_rng((seed, number)).permutation(len(self.items))
        some: list[Item] = []
        n = 0
        for i in order:
            group, text = self.items[i]
            starts = self._group(group)["starts"]
            length = int(starts[text + 1] - starts[text])
            if some and n + length > n_tokens:
                yield some
                some, n = [], 0
            some.append((group, text))
            n += length
        yield some

    def batch(self, items: list[Item], device: torch.device) -> Batch:
        groups = [(self._group(group), text) for group, text in items]
        spans = [slice(int(g["starts"][text]), int(g["starts"][text + 1])) for g, text in groups]
        n = max(s.stop - s.start for s in spans)

        def padded(name: str) -> Tensor:
            first = groups[0][0][name]
            rows = np.zeros((len(items), n, *first.shape[1:]), first.dtype)
            for row, (g, _), s in zip(rows, groups, spans, strict=True):
                row[: s.stop - s.start] = g[name][s]
            return torch.from_numpy(rows).to(device)

        features = padded("features").view(torch.bfloat16) if "features" in groups[0][0] else None
        return Batch(
            tokens=padded("tokens").long(),
            lengths=torch.tensor([s.stop - s.start for s in spans], device=device),
            n_given=torch.tensor([int(g["n_given"][text]) for g, text in groups], device=device),
            features=features,
            top_ids=padded("top_ids").long(),
            top_log_p=padded("top_log_p"),
        )
