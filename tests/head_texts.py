"""Texts and samplings on which draft heads are tried, and the comparison with plain decoding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import EXACT
from prompts import PROMPTS
from sizes import LARGE, size

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

N_TOKENS = size(24, 40)
TREE = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
TEXTS = ["Once upon a time", PROMPTS[3], "The dog saw the cat, and the cat saw the dog. " * 4 + "The dog"]
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "seed": 7},
    {"temperature": 1.0, "seed": 8, "top_k": 0, "min_p": 0.0, "top_n_sigma": 1.5},
    {"temperature": 0.7, "seed": 9, "repeat_penalty": 1.3, "grammar": "root ::= [a-z ,.\"']+"},
]


def ways(spec_type: str) -> dict[str, dict[str, Any]]:
    """Ways to guess with any head; more ones are the head's own."""
    return {
        "as it likes": {},
        "a chain of 4": {"n_draft": 4, "draft_tree": "chain"},
        "dynamic": {"n_draft": 8, "draft_tree": "dynamic"},
        "list": {"draft_tree": TREE},
        "with n-grams": {"n_draft": 6, "spec_type": f"{spec_type},ngram-map-k"},
    }


# Of the tests of each way in each mode, those that `make test` runs.
OFTEN = [("a chain of 4", "async"), ("dynamic", "sync")]
DAILY = [(way, mode) for way in ("as it likes", "a chain of 4", "list", "with n-grams") for mode in ("sync", "async")]


Written = list[list[tuple[int, ...]]]  # by text and sampling


def written() -> Written:
    """What the demo target writes alone."""
    with Duo(demo_pair()[0], n_ctx=512, **EXACT) as d:
        return [[d.generate(t, max_tokens=N_TOKENS, **s).tokens for s in SAMPLINGS] for t in TEXTS]


@contextmanager
def guessing(head: Path) -> Iterator[Duo]:
    """The demo target with a head that guesses whether that pays or not, or nothing would be tested."""
    with SwitchedDuo(demo_pair()[0], head, n_ctx=512, always=True, **EXACT) as d:
        yield d


def check_same(pair: Duo, plain: Written, mode: str, **way: Any) -> int:
    """Every text is plain's. Returns how many tokens were guessed."""
    n_drafted = 0
    for i, (text, wanted) in enumerate(zip(TEXTS, plain, strict=True)):
        # Each text and each way to sample; `make proof` has all pairs.
        for sampling, want in list(zip(SAMPLINGS, wanted, strict=True))[0 if LARGE else i % 2 :: size(2, 1)]:
            r = pair.generate(text, max_tokens=N_TOKENS, mode=mode, **sampling, **way)
            assert r.tokens == want, f"{text[:20]!r}, {sampling}"
            assert not r.warning
            n_drafted += pair.timings["draft_n"]
    return n_drafted


def least_drafted(way: str, mode: str) -> int:
    """Fewer guesses would test nothing. A busy machine may leave the draft few steps beside the target."""
    return 0 if way == "as it likes" else 100 if mode == "sync" else 10
