"""Whatever is prepared and verified - several outcomes, trees, n-grams - the text is what the target alone writes."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from gguf_files import header_of, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import quantized
from prompts import PROMPTS
from sizes import mostly_daily, size

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

N_TOKENS = size(36, 48)
LIST = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]  # Medusa's notation
REPEATED = "The dog saw the cat, and the cat saw the dog. " * 4 + "The dog"
TEXTS = ["Once upon a time", PROMPTS[3], REPEATED]
MIXED = "draft-simple,ngram-map-k"

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "0.8": {"temperature": 0.8, "seed": 7},
    "1": {"temperature": 1.0, "seed": 8, "top_k": 0, "min_p": 0.0},
    "penalties": {"temperature": 0.8, "seed": 9, "repeat_penalty": 1.3, "frequency_penalty": 0.4},
}
WAYS: dict[str, dict[str, Any]] = {
    "1 branch": {"n_draft_branches": 1},
    "4 branches": {"n_draft_branches": 4, "n_draft": 6},
    "8 branches": {"n_draft_branches": 8},
    "chain": {"draft_tree": "chain", "n_draft": 4},
    "dynamic": {"draft_tree": "dynamic", "n_draft": 8},
    "list": {"draft_tree": LIST},
    "n-grams": {"spec_type": "ngram-map-k"},
    "mixed": {"spec_type": MIXED},
    "mixed, dynamic": {"spec_type": "draft-simple,ngram-map-k4v", "draft_tree": "dynamic", "n_draft": 12},
}


def tokens(d: Duo, prompt: str, n: int = N_TOKENS, **options: Any) -> tuple[int, ...]:
    return d.generate(prompt, max_tokens=n, **options).tokens


@pytest.fixture(scope="module")
def pair() -> Iterator[Duo]:
    with Duo(n_ctx=512, **EXACT) as d:
        yield d


@pytest.fixture(scope="module")
def eager() -> Iterator[Duo]:
    """Speculates whether it pays or not: on models so small it often does not, and then nothing would be tested."""
    with SwitchedDuo(n_ctx=512, always=True, **EXACT) as d:
        yield d


@pytest.fixture(scope="module")
def alone() -> Iterator[Duo]:
    """The target, with no draft model."""
    with Duo(demo_pair()[0], n_ctx=512, **EXACT) as d:
        yield d


@pytest.fixture(scope="module")
def plain(alone: Duo) -> dict[tuple[str, str], tuple[int, ...]]:
    texts = {(p, s): tokens(alone, p, mode="plain", **o) for p in TEXTS for s, o in SAMPLINGS.items()}
    assert len(set(texts.values())) == len(texts)
    return texts


def in_turn(ways: Iterable[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All ways in both modes; and the ways in async and in sync, by turns."""
    names = list(ways)
    return [*itertools.product(names, ("sync", "async"))], [*zip(names, itertools.cycle(("async", "sync")))]


EACH, BY_TURNS = in_turn(WAYS)
# Other tests have chains, n-grams alone, and both sources.
OFTEN = [(way, mode) for way, mode in BY_TURNS if way not in ("8 branches", "chain", "n-grams", "mixed")]


@pytest.mark.parametrize(("way", "mode"), mostly_daily(EACH, OFTEN))
def test_the_text_is_plains(eager: Duo, plain: dict[tuple[str, str], tuple[int, ...]], way: str, mode: str) -> None:
    # A third of the texts each, another one in the other mode; every way meets every way of sampling and every prompt.
    texts = list(plain.items())[(list(WAYS).index(way) + (mode == "sync")) % 3 :: 3]
    n_accepted = 0
    for _ in range(10):  # on a busy machine guesses come late
        for (prompt, sampling), want in texts:
            text = tokens(eager, prompt, mode=mode, **SAMPLINGS[sampling], **WAYS[way])
            assert text == want, f"{prompt[:20]!r}, {sampling}"
            n_accepted += eager.timings["draft_n_accepted"]
        # N-grams have little to find in texts that do not repeat themselves; there is a test of texts that do.
        if n_accepted > 20 or way == "n-grams":
            return
    raise AssertionError("nothing was accepted, so nothing was tested")


@pytest.mark.parametrize(
    ("kind", "mode"), mostly_daily(*in_turn(["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod"]))
)
def test_n_grams_alone_find_what_repeats(pair: Duo, alone: Duo, kind: str, mode: str) -> None:
    a, b = pair.tokenize(" dog cat", add_bos=False)[:2]
    assert alone.draft is None
    for sampling in ("greedy", "0.8"):
        # Two tokens are by far the likeliest; greedy text repeats itself soon, and sampled text in part.
        o = {**SAMPLINGS[sampling], "logit_bias": {a: 30.0, b: 30.0}, "ngram_size_n": 4}
        want = tokens(alone, REPEATED, mode="plain", **o)
        assert set(want) <= {a, b}
        for d in (alone, pair):
            assert tokens(d, REPEATED, mode=mode, spec_type=kind, n_draft=8, draft_tree="dynamic", **o) == want
            t = d.timings
            assert t["draft_ngram_n_accepted"] > 0
            assert t["draft_n"] == t["draft_ngram_n"] > 0
            assert t["draft_n_accepted"] == t["draft_ngram_n_accepted"] < t["predicted_n"]
            assert t["draft_steps_n"] == 0, "the model drafted too"
            assert t["target_passes_n"] < t["predicted_n"]


def test_n_grams_beside_the_draft_are_accepted_too(eager: Duo) -> None:
    n = 0
    for prompt in (REPEATED, "One day a dog saw a cat.", *PROMPTS[: size(1, 4)]):
        want = tokens(eager, prompt, 96, temperature=0, mode="plain")
        assert tokens(eager, prompt, 96, temperature=0, mode="sync", n_draft=6, spec_type=MIXED) == want
        t = eager.timings
        assert t["draft_steps_n"] > 0
        assert t["draft_ngram_n"] <= t["draft_n"]
        assert t["draft_ngram_n_accepted"] <= t["draft_ngram_n"]
        n += t["draft_ngram_n_accepted"]
    assert n > 0


@pytest.mark.parametrize("sources", ["ngram-mod", "draft-simple,ngram-mod"])
@pytest.mark.parametrize("sampling", ["greedy", "0.8"])
def test_what_earlier_texts_said_is_guessed(
    eager: Duo, plain: dict[tuple[str, str], tuple[int, ...]], sources: str, sampling: str
) -> None:
    prompt = TEXTS[1]
    o = {**SAMPLINGS[sampling], "mode": "sync", "n_draft": 8, "spec_type": sources}
    n_right = []
    for _ in range(3):
        assert tokens(eager, prompt, **o) == plain[prompt, sampling]
        n_right.append(eager.timings["draft_ngram_n_accepted"])
    assert max(n_right[1:]) >= (N_TOKENS // 2 if sources == "ngram-mod" else 1), n_right


def test_side_branches_are_accepted(eager: Duo, plain: dict[tuple[str, str], tuple[int, ...]]) -> None:
    for sampling in ("0.8", "greedy"):
        n_side = 0
        for prompt in TEXTS:
            text = tokens(eager, prompt, mode="sync", draft_tree=LIST, **SAMPLINGS[sampling])
            assert text == plain[prompt, sampling]
            assert eager.timings["draft_side_n"] <= eager.timings["draft_rounds"]
            n_side += eager.timings["draft_side_n"]
        assert n_side > 0
    tokens(eager, TEXTS[0], mode="sync", draft_tree="chain", temperature=0)
    assert eager.timings["draft_side_n"] == 0


DELAYED = [["list", "n-grams", "8 branches"], ["dynamic", "mixed", "4 branches"]]


@pytest.mark.random
@pytest.mark.parametrize("mode", mostly_daily(["sync", "async"], ["async"]))
@pytest.mark.parametrize("ways", mostly_daily(DELAYED, DELAYED[1:]), ids=lambda w: w[0])
def test_delays_do_not_change_the_text(
    plain: dict[tuple[str, str], tuple[int, ...]], ways: list[str], mode: str
) -> None:
    for seed in range(size(1, 2)):
        with SwitchedDuo(n_ctx=512, **EXACT, delay=(2000, seed)) as d:
            for way, ((prompt, sampling), want) in itertools.product(ways, list(plain.items())[seed::4]):
                text = tokens(d, prompt, 32, mode=mode, **SAMPLINGS[sampling], **WAYS[way])
                assert text == want[:32], f"{way}, {prompt[:20]!r}, {sampling}, delays {seed}"


ranks = st.lists(st.integers(0, 4), min_size=1, max_size=4)
trees = st.one_of(
    st.sampled_from(["auto", "chain", "dynamic"]),
    st.lists(ranks, min_size=1, max_size=8),
)
sources = st.sampled_from(["draft-simple", "ngram-simple", "ngram-map-k4v", "ngram-mod", MIXED, "none"])


@pytest.mark.random
@settings(
    max_examples=size(8, 500),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    mode=st.sampled_from(["sync", "async"]),
    n_draft=st.one_of(st.just("auto"), st.integers(1, 24)),
    branches=st.one_of(st.just("auto"), st.integers(1, 16)),
    tree=trees,
    source=sources,
    temperature=st.sampled_from([0.0, 0.5, 0.8, 1.3]),
    seed=st.integers(0, 2**32),
    prompt=st.sampled_from([*TEXTS, *PROMPTS[:6], "a a a a a a a a"]),
    n=st.integers(1, 40),
)
def test_every_kind_of_speculation_writes_the_same_text(
    pair: Duo, mode: str, n_draft: Any, branches: Any, tree: Any, source: str, temperature: float, seed: int,
    prompt: str, n: int,
) -> None:  # fmt: skip
    sampling = {"temperature": temperature, "seed": seed}
    want = tokens(pair, prompt, n, mode="plain", **sampling)
    options = {"n_draft": n_draft, "n_draft_branches": branches, "draft_tree": tree, "spec_type": source}
    assert tokens(pair, prompt, n, mode=mode, **sampling, **options) == want


# ---- a smaller quantisation of the target as its draft


@pytest.fixture(scope="session")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo target as q4_0."""
    source, to = demo_pair()[0], tmp_path_factory.mktemp("self") / "q4_0.gguf"
    q8, q4 = GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0
    tensors = []
    for t in CheckedGgufReader(source).tensors:
        changed = t.tensor_type == q8
        data = quantized(dequantize(t.data, q8), q4) if changed else np.array(t.data)
        tensors.append((t.name, data, q4 if changed else t.tensor_type))
    assert any(raw_type == q4 for _, _, raw_type in tensors)
    return write(to, header_of(source), tensors)


@pytest.mark.daily
@pytest.mark.random
def test_a_target_speculates_with_a_smaller_quantisation_of_itself(smaller: Path) -> None:
    assert smaller.stat().st_size < 0.7 * demo_pair()[0].stat().st_size
    n_rounds, n_right = 0, 0.0
    with Duo(demo_pair()[0], smaller, n_ctx=512, **EXACT) as d:
        for i, prompt in enumerate(PROMPTS[: size(3, 6)]):
            o = {"temperature": 0.8 * (i % 2), "seed": i}
            want = tokens(d, prompt, 96, mode="plain", **o)
            assert tokens(d, prompt, 96, mode="sync", n_draft=3, **o) == want
            t = d.timings
            n_rounds += t["draft_rounds"]
            n_right += t["draft_acceptance_by_position"][0] * t["draft_rounds"]
            assert tokens(d, prompt, 96, mode="async", **o) == want
    assert n_rounds > size(45, 90)
    assert n_right / n_rounds > 0.8
