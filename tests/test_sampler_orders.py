"""Samplers in any order, mirostat and adaptive-p: one text in every mode, chosen as an independent reckoning says."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import mostly_daily, size

from duo import BadValueError, Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.options.samplers import ALL

PROMPT = "Once upon a time"
NEVER = -np.inf
Row = Any
WORD = 2**64 - 1


@pytest.fixture(scope="module")
def duo() -> Iterator[Duo]:
    with SwitchedDuo(n_ctx=512, always=True) as d:
        yield d


# ---- the reckoning


def mixed(x: int) -> int:
    """csrc/text/sampling.h: splitmix64's finaliser."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
    return x ^ (x >> 31)


def noise(seed: int, pos: int, token: int) -> float:
    row = mixed((seed + 0x9E3779B97F4A7C15 * (pos + 1)) & WORD)
    bits = mixed((row + 0xD1B54A32D192ED03 * (token + 1)) & WORD)
    return float(-np.log(-np.log(((bits >> 11) + 0.5) * 2.0**-53)))


def chances(row: Row) -> Row:
    e = np.exp(row - row.max())
    return e / e.sum()


def best_first(row: Row) -> Row:
    return np.argsort(-row, kind="stable")


def top_k(row: Row, k: int) -> Row:
    out = np.full_like(row, NEVER)
    keep = best_first(row)[:k]
    out[keep] = row[keep]
    return out


def top_p(row: Row, p: float) -> Row:
    order = best_first(row)
    n = int(np.searchsorted(np.cumsum(chances(row)[order]), p)) + 1
    out = np.full_like(row, NEVER)
    out[order[:n]] = row[order[:n]]
    return out


def min_p(row: Row, p: float) -> Row:
    return np.where(chances(row) >= p * chances(row).max(), row, NEVER)


STEPS: dict[str, Callable[[Row, dict[str, Any]], Row]] = {
    "top_k": lambda row, o: top_k(row, o["top_k"]),
    "top_p": lambda row, o: top_p(row, o["top_p"]),
    "min_p": lambda row, o: min_p(row, o["min_p"]),
    "temperature": lambda row, o: row / o["temperature"],
}


def raced(row: Row, seed: int, pos: int) -> list[int]:
    """Tokens by their score with the noise, best first, of those that are left."""
    left = np.flatnonzero(np.isfinite(row))
    return sorted(left.tolist(), key=lambda t: -(row[t] + noise(seed, pos, t)))


def rows_of(d: Duo, **o: Any) -> tuple[list[int], list[Row], int]:
    """The tokens of a text, the logits that they were chosen from, and the length of the prompt."""
    rows: list[Row] = []

    def keep(_ids: Any, scores: Row) -> Row:
        rows.append(scores.astype(np.float64))
        return scores

    r = d.generate(PROMPT, logits_processor=keep, **o)
    return list(r.tokens), rows, r.prompt_tokens


# ---- orders


@pytest.mark.parametrize(
    "names",
    mostly_daily(
        ["temperature;top_p;top_k", "min_p;temperature;top_k", "temperature;min_p;top_p", "top_p;top_k;temperature",
         "t", "temperature;temperature;top_k"],
        ["temperature;top_p;top_k", "temperature;min_p;top_p", "t"],
    ),
)  # fmt: skip
def test_tokens_are_chosen_as_reckoned(duo: Duo, names: str) -> None:
    o = {"temperature": 1.7, "top_k": 7, "top_p": 0.8, "min_p": 0.1}
    steps = [n for n in names.split(";") if n in STEPS] or ["temperature"]
    tokens, rows, n_prompt = rows_of(duo, samplers=names, seed=11, max_tokens=30, ignore_eos=False, **o)
    for i, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        for step in steps:
            row = STEPS[step](row, o)
        found = raced(row, 11, n_prompt + i)
        assert token == found[0] or (  # a tie of floats
            token == found[1] and abs(row[found[0]] - row[found[1]]) < 1e-3
        )


@pytest.mark.random
@settings(
    max_examples=size(5, 300),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    names=st.lists(st.sampled_from(ALL), max_size=10).filter(lambda names: names.count("dry") < 2),
    how=st.fixed_dictionaries({
        "temperature": st.sampled_from([0.0, 0.5, 1.0, 3.0]), "top_k": st.sampled_from([0, 1, 5, 40]),
        "top_p": st.sampled_from([0.3, 0.9, 1.0]), "min_p": st.sampled_from([0.0, 0.2]),
        "typical_p": st.sampled_from([0.5, 1.0]), "top_n_sigma": st.sampled_from([-1.0, 1.0]),
        "xtc_probability": st.sampled_from([0.0, 0.5]), "repeat_penalty": st.sampled_from([1.0, 1.3]),
        "dry_multiplier": st.sampled_from([0.0, 1.0]), "dynatemp_range": st.sampled_from([0.0, 0.4]),
        "seed": st.integers(0, 2**40), "max_tokens": st.integers(1, 40),
    }),
)  # fmt: skip
def test_any_order_writes_one_text(duo: Duo, names: list[str], how: dict[str, Any]) -> None:
    plain = duo.generate(PROMPT, mode="plain", samplers=names, **how)
    for mode in ("sync", "async"):
        r = duo.generate(PROMPT, mode=mode, samplers=names, **how)
        assert (r.tokens, r.finish_reason) == (plain.tokens, plain.finish_reason), mode


def test_the_usual_order_is_the_usual_text(duo: Duo) -> None:
    o = {"seed": 4, "max_tokens": 30}
    assert duo.generate(PROMPT, samplers=";".join(ALL), **o).tokens == duo.generate(PROMPT, **o).tokens


def test_guesses_are_still_accepted(duo: Duo) -> None:
    order = "top_k;top_p;min_p;temperature;dry;typ_p;xtc"
    r = duo.generate(PROMPT, samplers=order, seed=3, max_tokens=100, mode="sync", n_draft=4)
    assert r.timings["draft_acceptance"] > 0.2


# ---- mirostat


@pytest.mark.parametrize("version", mostly_daily([1, 2], [2]))
def test_mirostat_writes_one_text(duo: Duo, version: int) -> None:
    o = {"mirostat": version, "mirostat_tau": 3.0, "mirostat_eta": 0.3, "max_tokens": 40, "seed": 6}
    plain = duo.generate(PROMPT, mode="plain", **o)
    for mode in ("sync", "async"):
        r = duo.generate(PROMPT, mode=mode, **o)
        assert r.tokens == plain.tokens
        assert r.timings["draft_n_accepted"] > 0
    assert duo.generate(PROMPT, **{**o, "mirostat": 0}).tokens != plain.tokens
    # It replaces the other samplers.
    assert duo.generate(PROMPT, **o, top_k=1, top_p=0.1, repeat_penalty=1.5).tokens == plain.tokens


def test_mirostat_2_chooses_as_reckoned(duo: Duo) -> None:
    tau, eta, temp = 2.5, 0.4, 0.9
    tokens, rows, n_prompt = rows_of(
        duo, mirostat=2, mirostat_tau=tau, mirostat_eta=eta, temperature=temp, seed=21, max_tokens=40
    )
    limit, n_dropped = 2 * tau, 0
    for i, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        p = chances(row / temp)
        kept = p >= min(p.max(), 2.0**-limit)
        n_dropped += int((~kept).sum())
        found = raced(np.where(kept, row / temp, NEVER), 21, n_prompt + i)
        assert token == found[0]
        limit -= eta * (-np.log2(p[token] / p[kept].sum()) - tau)
    assert n_dropped


def test_mirostat_without_a_temperature_is_greedy(duo: Duo) -> None:
    o = {"temperature": 0, "max_tokens": 20}
    assert duo.generate(PROMPT, mirostat=2, **o).tokens == duo.generate(PROMPT, **o).tokens


def test_infill_writes_one_text(duo: Duo) -> None:
    o = {"samplers": "top_k;infill", "top_k": 40, "max_tokens": 24, "seed": 3}
    plain = duo.generate(PROMPT, mode="plain", **o)
    for mode in ("sync", "async"):
        assert duo.generate(PROMPT, mode=mode, **o).tokens == plain.tokens
    assert plain.tokens != duo.generate(PROMPT, **{**o, "samplers": "top_k"}).tokens
    # The whole vocabulary would be compared with itself: only the best tokens are.
    assert duo.generate(PROMPT, samplers=["infill"], max_tokens=4, seed=3).tokens


# ---- adaptive-p

NEAR = {"samplers": "top_k;temperature;adaptive_p", "top_k": 30, "temperature": 0.9, "adaptive_decay": 0.8}


def test_adaptive_p_writes_one_text(duo: Duo) -> None:
    o = {**NEAR, "adaptive_target": 0.4, "max_tokens": 40, "seed": 6}
    plain = duo.generate(PROMPT, mode="plain", **o)
    for mode in ("sync", "async"):
        r = duo.generate(PROMPT, mode=mode, **o)
        assert r.tokens == plain.tokens
        assert r.timings["draft_n_accepted"] > 0
    # It comes last, wherever it is named, and is off without a target.
    assert duo.generate(PROMPT, **{**o, "samplers": "akt"}).tokens == plain.tokens
    off = duo.generate(PROMPT, **{**o, "adaptive_target": -1.0}).tokens
    assert off == duo.generate(PROMPT, **{**o, "samplers": "kt"}).tokens != plain.tokens


def test_adaptive_p_chooses_as_reckoned(duo: Duo) -> None:
    target, decay = 0.3, NEAR["adaptive_decay"]
    tokens, rows, n_prompt = rows_of(duo, **NEAR, adaptive_target=target, seed=21, max_tokens=40)
    chosen, weight = target / (1 - decay), 1 / (1 - decay)
    for i, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        p = chances(top_k(row, 30) / NEAR["temperature"])
        far = np.abs(p - np.clip(2 * target - chosen / weight, 0, 1)) / 0.3
        assert token == raced(np.where(p > 0, 5 - 10 * far**2 / (1 + far), NEVER), 21, n_prompt + i)[0]
        chosen, weight = p[token] + decay * chosen, 1 + decay * weight


def test_llama_cpps_names(duo: Duo) -> None:
    o = {"max_tokens": 12, "seed": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.2}
    want = duo.generate(PROMPT, mirostat=2, **o).text
    assert duo.create_completion(PROMPT, mirostat_mode=2, **o)["choices"][0]["text"] == want


def test_mistakes_are_sentences(duo: Duo) -> None:
    for bad, words in (({"mirostat": 3}, "mirostat"), ({"mirostat_tau": -1.0}, "mirostat_tau"),
                       ({"samplers": ["top_q"]}, "no sampler"), ({"samplers": "dd"}, "dry can be there once"),
                       ({"samplers": "t" * 40}, "32 samplers")):  # fmt: skip
        with pytest.raises(BadValueError, match=words):
            duo.generate(PROMPT, **bad)


# ---- a grammar

DIGITS = "root ::= [0-9]+"


FEW_LEFT: list[dict[str, Any]] = [
    {"samplers": "temperature;top_k", "top_k": 2}, {"samplers": "top_p;top_k;temperature", "top_p": 0.2},
    {"mirostat": 1, "mirostat_tau": 0.5}, {"mirostat": 2, "mirostat_tau": 0.5},
    {**NEAR, "top_k": 2, "adaptive_target": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("how", mostly_daily(FEW_LEFT, [FEW_LEFT[0], FEW_LEFT[3]]))
def test_a_grammar_that_allows_nothing_of_what_they_leave_comes_first(duo: Duo, how: dict[str, Any]) -> None:
    texts = [
        duo.generate(PROMPT, mode=m, grammar=DIGITS, seed=2, max_tokens=12, **how) for m in ("plain", "sync", "async")
    ]
    for r in texts:
        assert r.text.isdigit() and r.tokens == texts[0].tokens, r.text
    assert duo.generate(PROMPT, grammar='root ::= " the " [a-z ]*', seed=2, max_tokens=12, **how).text.startswith(
        " the "
    )


def test_the_samplers_choose_from_what_the_grammar_allows(duo: Duo) -> None:
    pieces = [duo.decode([t]) for t in range(duo.n_vocab())]
    digits = np.array([p.isdigit() and p.isascii() for p in pieces])
    o = {"temperature": 1.5, "top_k": 3, "samplers": "temperature;top_k"}
    tokens, rows, n_prompt = rows_of(
        duo, grammar="root ::= [0-9] [0-9] [0-9] [0-9] [0-9] [0-9]", seed=5, max_tokens=6, **o
    )
    n_again = 0
    for i, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        first = STEPS["top_k"](row / o["temperature"], o)
        if not np.isfinite(first[digits]).any():
            first, n_again = STEPS["top_k"](np.where(digits, row / o["temperature"], NEVER), o), n_again + 1
        assert token == next(t for t in raced(first, 5, n_prompt + i) if digits[t])
    assert n_again


def test_mirostat_obeys_ignore_eos(duo: Duo) -> None:
    r = duo.generate("The end.", mirostat=2, mirostat_tau=0.1, ignore_eos=True, max_tokens=60, seed=1)
    assert len(r.tokens) == 60


def test_minus_one_looks_back_at_the_whole_text(duo: Duo) -> None:
    o = {"samplers": "temperature;penalties;dry", "temperature": 0.7, "repeat_penalty": 1.8, "dry_multiplier": 2.0}
    whole, all_of_it, none = (
        duo.generate(PROMPT, **o, repeat_last_n=n, dry_penalty_last_n=n, seed=9, max_tokens=60).tokens
        for n in (-1, 512, 0)
    )
    assert whole == all_of_it != none
