"""Texts and samplings on which draft heads are tried, and the comparison with plain decoding."""

from __future__ import annotations

from typing import Any

from prompts import PROMPTS

from duo import Duo

TREE = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
TEXTS = ["Once upon a time", PROMPTS[3], "The dog saw the cat, and the cat saw the dog. " * 4 + "The dog"]
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "seed": 7},
    {"temperature": 1.0, "seed": 8, "top_k": 0, "min_p": 0.0, "top_n_sigma": 1.5},
    {"temperature": 0.7, "seed": 9, "repeat_penalty": 1.3, "grammar": "root ::= [a-z ,.\"']+"},
]
Written = list[list[tuple[int, ...]]]  # by text and sampling


def written(d: Duo) -> Written:
    return [[d.generate(t, max_tokens=40, **s).tokens for s in SAMPLINGS] for t in TEXTS]


def check_same(pair: Duo, plain: Written, mode: str, **way: Any) -> int:
    """Every text is plain's. Returns how many tokens were guessed."""
    n_drafted = 0
    for text, wanted in zip(TEXTS, plain, strict=True):
        for sampling, want in zip(SAMPLINGS, wanted, strict=True):
            r = pair.generate(text, max_tokens=40, mode=mode, **sampling, **way)
            assert r.tokens == want, f"{text[:20]!r}, {sampling}"
            assert not r.warning
            n_drafted += pair.timings["draft_n"]
    return n_drafted


def least_drafted(way: str, mode: str) -> int:
    """Fewer guesses would test nothing. A busy machine may leave the draft few steps beside the target."""
    return 0 if way == "as it likes" else 100 if mode == "sync" else 10
