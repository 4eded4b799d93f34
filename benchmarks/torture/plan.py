"""Which fault has which number: decided by a seed, so that a fault can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.torture.kind import Kind


@dataclass(frozen=True)
class Batch:
    """Faults of one kind that share a process: numbers first to first + n - 1."""

    kind: type[Kind]
    first: int
    n: int
    begin: int = 0  # faults at its beginning that are left out: they have happened
    seed: int = 1

    @property
    def numbers(self) -> range:
        return range(self.first + self.begin, self.first + self.n)

    def shared_rng(self) -> random.Random:
        return random.Random(f"{self.seed}/{self.first}/batch")

    def rng(self, number: int) -> random.Random:
        return random.Random(f"{self.seed}/{number}")


def batches(kinds: Sequence[type[Kind]], seed: int, n_faults: int) -> Iterator[Batch]:
    """All faults, in batches: at any time each kind has about its share of what has been."""
    rng = random.Random(f"{seed}/plan")
    done = dict.fromkeys(kinds, 0)
    whole = sum(k.share for k in kinds)
    first = 0
    while first < n_faults:
        # The kind that lacks most; a random one of those that lack about the same.
        lack = {k: k.share / whole * (first + 40) - done[k] + rng.random() * k.n_batch / 2 for k in kinds}
        kind = max(kinds, key=lambda k: lack[k])
        n = min(kind.n_batch, n_faults - first)
        yield Batch(kind, first, n, seed=seed)
        done[kind] += n
        first += n


def after(plan: Iterator[Batch], first: int) -> Iterator[Batch]:
    """What of a plan is left."""
    return (batch for batch in plan if batch.first >= first)


def each(kinds: Sequence[type[Kind]], seed: int, n: int) -> Iterator[Batch]:
    """So many faults of each kind."""
    for i, kind in enumerate(kinds):
        yield Batch(kind, i * n, n, seed=seed)


def batch_of(plan: Iterator[Batch], number: int) -> Batch:
    """Raises SystemExit: there is no such fault."""
    for batch in plan:
        if number in batch.numbers:
            return batch
    raise SystemExit(f"the plan has no fault {number}; give the options of the run that had it")
