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
N_MAPPED = 8  # groups; each takes six file descriptors, of which a process may have no more than 256 (macOS)
PADDED = ("tokens", "features", "top_ids", "top_log_p")


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
        self._group = lru_cache(maxsize=N_MAPPED)(lambda i: folder.lessons(kind, i))
        self._starts: dict[int, Array] = {}  # in memory
        self.items: list[Item] = []
        self.n_tokens = 0
        for i in folder.groups(kind):
            self._starts[i] = np.array(self._group(i)["starts"])
            lengths = np.diff(self._starts[i])
            self.items += [(i, text) for text in range(len(lengths)) if lengths[text] > 2]
            self.n_tokens += int(lengths.sum())
        if not self.items:
            raise BadValueError(f"{folder.path} has no texts of three tokens or more; give other data")

    def counts(self, n_vocab: int) -> Array:
        """How often each token occurs, or is what the target would choose."""
        counts = np.zeros(n_vocab, np.int64)
        for i in self._starts:
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
            item = self.items[i]
            span = self._span(item)
            length = span.stop - span.start
            if some and n + length > n_tokens:
                yield some
                some, n = [], 0
            some.append(item)
            n += length
        yield some

    def _span(self, item: Item) -> slice:
        """The text's rows in its group."""
        starts = self._starts[item[0]]
        return slice(int(starts[item[1]]), int(starts[item[1] + 1]))

    def batch(self, items: list[Item], device: torch.device) -> Batch:
        spans = [self._span(item) for item in items]
        lengths = [s.stop - s.start for s in spans]
        padded: dict[str, Array] = {}
        n_given: list[int] = []
        for i, ((group, text), span) in enumerate(zip(items, spans, strict=True)):
            arrays = self._group(group)  # not kept: a batch may have texts of more groups than can be mapped
            n_given.append(int(arrays["n_given"][text]))
            for name in PADDED:
                if name in arrays:
                    rows = arrays[name][span]
                    if not i:
                        padded[name] = np.zeros((len(items), max(lengths), *rows.shape[1:]), rows.dtype)
                    padded[name][i, : len(rows)] = rows
        tensors = {name: torch.from_numpy(rows).to(device) for name, rows in padded.items()}
        return Batch(
            tokens=tensors["tokens"].long(),
            lengths=torch.tensor(lengths, device=device),
            n_given=torch.tensor(n_given, device=device),
            features=tensors["features"].view(torch.bfloat16) if "features" in tensors else None,
            top_ids=tensors["top_ids"].long(),
            top_log_p=tensors["top_log_p"],
        )
