"""Tokens with which no question begins, for texts that push the questions out of the prompt caches."""

from __future__ import annotations

from collections.abc import Set
from itertools import islice


def strangers(tokens: Set[int], n_vocab: int, n: int) -> list[int]:
    """n tokens that are not among `tokens`; fewer if the vocabulary has no more.

    They differ, so that n texts in turn go to n slots: each slot has nothing in common with the text, and the one that
    was used least recently is taken.
    """
    start = max(tokens, default=0) + 1
    others = ((start + i) % n_vocab for i in range(n_vocab))
    return list(islice((t for t in others if t not in tokens), n))
