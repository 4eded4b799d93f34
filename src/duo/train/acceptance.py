"""What validation says while a draft is trained: how many of its guesses the target would accept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Acceptance:
    """How often chains of guesses are right, at every position of texts that the target wrote greedily, as in greedy
    speculation. Nothing is sampled: both models take the most probable token."""

    n: int  # chains
    n_right: tuple[int, ...]  # by position: chains whose guesses are right up to there

    def __add__(self, other: Acceptance) -> Acceptance:
        both = zip(self.n_right, other.n_right, strict=True)
        return Acceptance(self.n + other.n, tuple(a + b for a, b in both))

    @classmethod
    def none(cls, n_positions: int) -> Acceptance:
        return cls(0, (0,) * n_positions)

    @property
    def by_position(self) -> list[float]:
        """Share of right guesses among those whose chain was right before, as duo counts it."""
        before = (self.n, *self.n_right)
        return [right / n if n else 0.0 for n, right in zip(before, self.n_right, strict=False)]

    @property
    def mean_length(self) -> float:
        """Tokens per pass of the target, its own one included."""
        return 1.0 + sum(self.n_right) / self.n if self.n else 1.0

    def words(self) -> str:
        shares = ", ".join(f"{100 * share:.0f}" for share in self.by_position)
        return f"{self.mean_length:.2f} tokens a pass (right by position: {shares} %)"


def runs(right: Sequence[bool], n_positions: int) -> Acceptance:
    """The acceptance of a model that guesses each token from the true ones before it. A chain begins at every token."""
    by_depth, length = [0] * n_positions, 0
    n = max(0, len(right) - n_positions + 1)
    for i in reversed(range(len(right))):
        length = length + 1 if right[i] else 0
        if i < n:
            for depth in range(min(length, n_positions)):
                by_depth[depth] += 1
    return Acceptance(n, tuple(by_depth))
