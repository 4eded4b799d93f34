"""DRY, XTC, top-n-sigma, typical-p, dynamic temperature: libllama's candidates, and one text whatever the mode."""

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import llama_cpp
import numpy as np
import pytest
from conftest import EXACT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prompts import PROMPTS
from sizes import mostly_daily, size

from duo import Duo, _core
from duo.benchmark.doctor import options
from duo.generation.job import sampling
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.options.validate import generate_options

TARGET, DRAFT = demo_pair()
BREAKERS = ["\n", ":", '"', "*"]
# Passages that occur twice, so that DRY has something to find.
TEXTS = [
    "The king had a dog. The king had a cat. The king had a dog and a cat. The king had a",
    'She said: "Come in, come in, come in, my dear." She said: "Come in, come',
    *PROMPTS[:6],
]
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}

Found = dict[int, float]


@pytest.fixture(scope="module")
def probe() -> _core.Probe:
    return _core.Probe(options(str(TARGET), 1, [], 512))


@pytest.fixture(scope="module")
def vocab() -> Iterator[llama_cpp.Llama]:
    model = llama_cpp.Llama(str(TARGET), vocab_only=True, verbose=False)
    yield model
    model.close()


TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


def normal(logits: Found) -> Found:
    """The softmax. logits: by token."""
    x = np.fromiter(logits.values(), float, len(logits))
    weights = np.exp(x - x.max())
    return dict(zip(logits, (weights / weights.sum()).tolist(), strict=True))


def duos(probe: _core.Probe, row: int, text: list[int], seed: int = 1, **o: Any) -> Found:
    """What duo leaves of a row, with probabilities."""
    how = sampling(generate_options({**OFF, **o}), seed)
    return normal(dict(probe.candidates(row, how, text, probe.n_vocab)))


def libllamas(vocab: llama_cpp.Llama, logits: Any, text: list[int], **given: Any) -> Found:
    """What libllama's samplers leave of a row, in the order of its programs."""
    o = generate_options({**OFF, **given})
    model = vocab._model.vocab
    breakers = [b.encode() for b in o["dry_sequence_breakers"]]
    array = (ctypes.c_char_p * len(breakers))(*breakers)
    last_n = len(text) if o["dry_penalty_last_n"] < 0 else o["dry_penalty_last_n"]
    n_vocab = len(logits)
    chain = [
        llama_cpp.llama_sampler_init_penalties(
            n_vocab, o["repeat_last_n"], o["repeat_penalty"], o["frequency_penalty"], o["presence_penalty"]
        ),
        llama_cpp.llama_sampler_init_dry(
            model, o["dry_multiplier"], o["dry_base"], o["dry_allowed_length"], last_n, array, len(breakers)
        ),
        llama_cpp.llama_sampler_init_top_n_sigma(o["top_n_sigma"]),
        llama_cpp.llama_sampler_init_top_k(o["top_k"]),
        llama_cpp.llama_sampler_init_typical(o["typical_p"], 0),
        llama_cpp.llama_sampler_init_top_p(o["top_p"], 0),
        llama_cpp.llama_sampler_init_min_p(o["min_p"], 0),
        llama_cpp.llama_sampler_init_xtc(o["xtc_probability"], o["xtc_threshold"], 0, 7),
        llama_cpp.llama_sampler_init_temp_ext(o["temperature"], o["dynatemp_range"], o["dynatemp_exponent"]),
    ]
    data = np.zeros(n_vocab, TOKEN_DATA)
    data["id"], data["logit"] = np.arange(n_vocab), logits
    pointer = data.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
    left = llama_cpp.llama_token_data_array(pointer, n_vocab, -1, False)
    for sampler in chain:
        for token in text if sampler in chain[:2] else ():
            llama_cpp.llama_sampler_accept(sampler, token)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(left))
        llama_cpp.llama_sampler_free(sampler)
    found = np.ctypeslib.as_array(left.data, (left.size,))  # XTC leaves the end
    return normal({t: x for t, x in zip(found["id"].tolist(), found["logit"].tolist(), strict=True) if x > -math.inf})


ALONE: dict[str, dict[str, Any]] = {
    "typical 0.9": {"typical_p": 0.9},
    "typical 0.3": {"typical_p": 0.3},
    "typical, top-k": {"typical_p": 0.5, "top_k": 40},
    "sigma 1": {"top_n_sigma": 1.0},
    "sigma 2.5": {"top_n_sigma": 2.5, "temperature": 1.5},
    "sigma, others": {"top_n_sigma": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "xtc 0.01": {"xtc_probability": 1.0, "xtc_threshold": 0.01},
    "xtc, others": {"xtc_probability": 1.0, "xtc_threshold": 0.1, "top_k": 20, "min_p": 0.01, "temperature": 0.7},
    "no xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    "dynatemp": {"dynatemp_range": 0.5, "temperature": 0.8, "top_k": 40},
    "dynatemp from 0": {"dynatemp_range": 1.5, "dynatemp_exponent": 0.7, "top_k": 100},
    "dynatemp, whole row": {"dynatemp_range": 0.9, "dynatemp_exponent": 2.0},
    "dry": {"dry_multiplier": 0.8},
    "dry, all": {"dry_multiplier": 1.5, "dry_base": 1.2, "dry_allowed_length": 1, "dry_penalty_last_n": -1},
    "dry, no breakers": {"dry_multiplier": 2.0, "dry_allowed_length": 0, "dry_sequence_breakers": []},
    "dry, long breakers": {"dry_multiplier": 2.0, "dry_allowed_length": 1,
                           "dry_sequence_breakers": ["king had", "in, c", "é", " a"]},
    "dry, short": {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_penalty_last_n": 9},
    "all": {"typical_p": 0.95, "xtc_probability": 1.0, "dry_multiplier": 0.8, "repeat_penalty": 1.2, "top_k": 40,
            "top_p": 0.97, "min_p": 0.005, "dynatemp_range": 0.3, "temperature": 0.9},
}  # fmt: skip
OFTEN = ("typical 0.9", "sigma 1", "xtc", "dynatemp", "dry, long breakers", "all")  # one of each sampler


@pytest.mark.full
@pytest.mark.random
@pytest.mark.parametrize("name", mostly_daily(ALONE, OFTEN))
def test_candidates_are_libllamas(probe: _core.Probe, vocab: llama_cpp.Llama, name: str) -> None:
    n_same = n_rows = n_changed = 0
    for text in map(probe.tokenize, TEXTS[: size(5, 8)]):
        probe.decode(text)
        logits = probe.logits()
        for i in range(len(text) - 1, 0, -7):
            ours, theirs = (
                duos(probe, i, text[: i + 1], **ALONE[name]),
                libllamas(vocab, logits[i], text[: i + 1], **ALONE[name]),
            )
            n_rows += 1
            n_changed += ours != duos(probe, i, text[: i + 1], temperature=ALONE[name].get("temperature", 1.0))
            if ours.keys() == theirs.keys():
                n_same += 1
                assert max(abs(ours[t] - theirs[t]) for t in ours) < 1e-4
    assert n_rows > 20
    assert n_same >= n_rows - 1, "the last candidate may differ: libllama adds up floats"
    assert n_changed > 2 or name == "no xtc"


@pytest.mark.parametrize("is_draft", [False, True])
def test_little_of_a_row_is_sorted_without_top_k(is_draft: bool) -> None:
    probe = _core.Probe(options(str(TARGET), 1, [], 512), is_draft)
    text = probe.tokenize(TEXTS[0])
    probe.decode(text)

    def n_sorted(**o: Any) -> int:
        before = probe.n_sorted
        how = sampling(generate_options({**OFF, **o}), 1)
        probe.candidates(len(text) - 1, how, text, 1)
        return probe.n_sorted - before

    assert n_sorted() == 0
    assert n_sorted(min_p=0.05) < probe.n_vocab / 2
    assert n_sorted(top_p=0.5, min_p=0.05) < probe.n_vocab
    assert n_sorted(typical_p=0.9) == probe.n_vocab


def test_xtc_takes_one_of_two_outcomes_by_seed_and_position(probe: _core.Probe) -> None:
    text = probe.tokenize(TEXTS[0])
    probe.decode(text)
    rows = [i for i in range(1, len(text)) if sum(p > 0.1 for p in duos(probe, i, text[: i + 1]).values()) > 1]
    n = n_applied = 0
    for i in rows:
        one, other = (duos(probe, i, text[: i + 1], xtc_probability=p, xtc_threshold=0.1, top_k=40) for p in (1.0, 0.0))
        assert one.keys() < other.keys()
        for seed in range(40):
            found = [
                duos(probe, i, text[: i + 1], seed, xtc_probability=0.3, xtc_threshold=0.1, top_k=40, temperature=t)
                for t in (1.0, 0.6)
            ]
            assert found[0].keys() == found[1].keys()
            assert found[0].keys() in (one.keys(), other.keys())
            n, n_applied = n + 1, n_applied + (found[0].keys() == one.keys())
    assert len(rows) > 5
    assert abs(n_applied - 0.3 * n) < 5 * math.sqrt(0.21 * n)


# ---- one text


def one_in(values: list[Any], off: Any) -> Any:
    """Half of the settings leave a sampler off."""
    return st.one_of(st.just(off), st.sampled_from(values))


SAMPLERS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.0, 1.5]),
        "seed": st.integers(0, 2**32),
        "top_k": st.sampled_from([0, 5, 40]),
        "top_p": st.sampled_from([0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05]),
        "typical_p": one_in([0.0, 0.2, 0.7, 0.95], 1.0),
        "top_n_sigma": one_in([0.0, 0.5, 1.0, 2.0], -1.0),
        "xtc_probability": one_in([0.3, 0.5, 1.0], 0.0),
        "xtc_threshold": st.sampled_from([0.0, 0.1, 0.3, 0.5]),
        "dynatemp_range": one_in([0.2, 0.7, 2.0], 0.0),
        "dynatemp_exponent": st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        "dry_multiplier": one_in([0.8, 5.0], 0.0),
        "dry_base": st.sampled_from([1.0, 1.75]),
        "dry_allowed_length": st.integers(0, 4),
        "dry_penalty_last_n": st.sampled_from([-1, 1, 20, 64]),
        "dry_sequence_breakers": st.sampled_from([BREAKERS, [], [" the", ", and "]]),
        "repeat_penalty": one_in([1.3], 1.0),
        "presence_penalty": one_in([0.5], 0.0),
        "logit_bias": one_in([{11: -math.inf, 16: 2.0}], {}),
        "grammar": one_in(['root ::= [a-z ]{5,30} "."', 'root ::= "[" [a-z ]{2,9} ("," [a-z ]{2,9})* "]"'], None),
        "ignore_eos": st.booleans(),
    }
)
WAYS = st.fixed_dictionaries(
    {
        "n_draft": st.sampled_from(["auto", 1, 4, 12]),
        "n_draft_branches": st.sampled_from(["auto", 1, 4]),
        "draft_window": st.sampled_from(["auto", "all", 1, 32]),
        "draft_tree": st.sampled_from(["auto", "chain", "dynamic", [[0], [1], [0, 0], [0, 1], [1, 0]]]),
        "spec_type": st.sampled_from(["draft-simple", "ngram-simple", "draft-simple,ngram-map-k"]),
    }
)


@pytest.fixture(scope="module")
def eager() -> Iterator[Duo]:
    """A pair that drafts whether it pays off or not."""
    with SwitchedDuo(n_ctx=512, always=True, **EXACT) as d:
        yield d


@pytest.mark.random
@settings(
    max_examples=size(8, 500),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(how=SAMPLERS, way=WAYS, prompt=st.sampled_from(TEXTS), n=st.integers(1, 40))
def test_any_samplers_write_one_text(eager: Duo, how: Any, way: Any, prompt: str, n: int) -> None:
    o = {**how, "grammar": None if how["ignore_eos"] else how["grammar"], "max_tokens": n}
    plain = eager.generate(prompt, mode="plain", **o)
    for mode in ("sync", "async"):
        r = eager.generate(prompt, mode=mode, **o, **way)
        assert (r.tokens, r.finish_reason) == (plain.tokens, plain.finish_reason), mode


def accepted(d: Duo, **o: Any) -> float:
    """The share of first guesses that the target takes."""
    n = k = 0
    for seed, prompt in enumerate(PROMPTS[: size(8, 16)]):
        d.generate(prompt, seed=seed, max_tokens=64, mode="sync", n_draft=1, ignore_eos=True, **o)
        n, k = n + d.timings["draft_n"], k + d.timings["draft_n_accepted"]
    return float(k / n)


@pytest.mark.daily
@pytest.mark.slow
@pytest.mark.random
def test_the_draft_guesses_with_the_same_filters(eager: Duo) -> None:
    """Some filters move the text to less likely tokens, on which models agree less; none makes guesses useless."""
    usual = accepted(eager)
    assert usual > 0.5
    for o in (
        {"typical_p": 0.5},
        {"top_n_sigma": 1.0},
        {"dynatemp_range": 0.5},
        {"dry_multiplier": 0.8},
        {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    ):
        assert accepted(eager, **o) > 0.6 * usual, str(o)


def test_breakers_of_whole_and_partial_tokens_are_found_by_array(probe: _core.Probe) -> None:
    """A breaker that ends in a later token counts only where that token follows."""
    text = probe.tokenize(TEXTS[0])
    probe.decode(text)
    row, whole = len(text) - 1, np.array(text)
    o: dict[str, Any] = {"dry_multiplier": 50.0, "dry_allowed_length": 2, "dry_sequence_breakers": []}
    free = duos(probe, row, whole.tolist(), **o)
    held = duos(probe, row, whole.tolist(), **{**o, "dry_sequence_breakers": ["king had a"]})
    other = duos(probe, row, whole.tolist(), **{**o, "dry_sequence_breakers": ["king had x"]})
    assert free == other != held
