"""What two texts, or their tokens, have in common."""

from __future__ import annotations

from collections.abc import Sequence


def n_same(a: Sequence[object], b: Sequence[object]) -> int:
    """Leading items that are the same in both."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
