"""Small real models: async, sync and plain decoding write the same text, alone and in a batch, greedy and sampled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import EXACT
from real_files import GEMMA3, LIST, SMOLLM2, TALES, need_models

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo

pytestmark = [pytest.mark.real, pytest.mark.slow]

Tokens = tuple[int, ...]
N_TOKENS = 24
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 11}
WAYS = {"greedy": {"temperature": 0}, "seeded": SEEDED}


@pytest.fixture(scope="module", params=[SMOLLM2, GEMMA3])
def pair(request: pytest.FixtureRequest) -> Iterator[Duo]:
    """A model as its own draft, so most guesses are right. They are verified whether that pays or not."""
    (path,) = need_models(request.param)
    with SwitchedDuo(path, path, n_ctx=2048, n_parallel=4, n_threads=1, n_threads_draft=1, always=True, **EXACT) as d:
        assert d.target.same_bits
        yield d


@pytest.fixture(scope="module")
def plain(pair: Duo) -> dict[str, list[Tokens]]:
    """Each text by the target alone."""
    return {way: [write(pair, p, way, mode="plain") for p in (*TALES, LIST)] for way in WAYS}


def write(d: Duo, prompt: str, way: str, **options: object) -> Tokens:
    return d.generate(prompt, max_tokens=N_TOKENS, **WAYS[way], **options).tokens


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_text_is_the_targets(mode: str, way: str, pair: Duo, plain: dict[str, list[Tokens]]) -> None:
    n_drafted = n_accepted = 0
    for i, prompt in enumerate(TALES):
        assert write(pair, prompt, way, mode=mode, n_draft=(4, 8)[i % 2]) == plain[way][i], prompt
        n_drafted += pair.timings["draft_n"]
        n_accepted += pair.timings["draft_n_accepted"]
    if mode == "sync":  # async waits for no guess
        assert n_drafted > 20, "nothing was speculated, so nothing was tested"
        assert n_accepted > 0.2 * n_drafted


@pytest.mark.parametrize("way", WAYS)
def test_text_in_company(way: str, pair: Duo, plain: dict[str, list[Tokens]]) -> None:
    found = pair.generate_many((*TALES, LIST), max_tokens=N_TOKENS, n_draft=4, **WAYS[way])
    assert [r.tokens for r in found] == plain[way]


@pytest.mark.parametrize("kinds", ["ngram-map-k", "draft-simple,ngram-simple"])
def test_n_grams(kinds: str, pair: Duo, plain: dict[str, list[Tokens]]) -> None:
    for mode in ("sync", "async"):
        assert write(pair, LIST, "greedy", mode=mode, n_draft=4, spec_type=kinds) == plain["greedy"][-1]
        assert pair.timings["draft_n"] > 0


def test_a_kept_prompt_changes_nothing(pair: Duo) -> None:
    prompt = " ".join(TALES) * 4
    texts = {write(pair, prompt, "greedy", mode=mode) for mode in ("plain", "async", "plain", "sync")}
    assert len(texts) == 1 and pair.timings["cache_n"] > 40


@pytest.mark.parametrize(("target", "draft"), [(SMOLLM2, GEMMA3), (GEMMA3, SMOLLM2)])
def test_a_draft_of_another_vocabulary(target: str, draft: str) -> None:
    """Byte-pair encoding and SentencePiece: 49,152 and 262,144 tokens."""
    paths = need_models(target, draft)
    with SwitchedDuo(*paths, n_ctx=2048, n_threads=1, n_threads_draft=1, always=True, **EXACT) as d:
        assert 0.1 < d.engine.shared_vocabulary < 1
        n_accepted = 0
        for prompt in (*TALES, LIST):
            for way in WAYS:
                want = write(d, prompt, way, mode="plain")
                for mode in ("sync", "async"):
                    r = d.generate(prompt, max_tokens=N_TOKENS, mode=mode, n_draft=3, **WAYS[way])
                    assert (r.tokens, r.warning) == (want, "")
                    n_accepted += r.timings["draft_n_accepted"]
    assert n_accepted > 40
