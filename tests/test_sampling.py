"""Above temperature 0 the text is a function of (target, prompt, seed), and its distribution is the target's."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from late import Late
from prompts import PROMPTS
from sizes import LARGE, size

from duo import Duo, _core
from duo.benchmark.doctor import options
from duo.generation.job import sampling
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.options.validate import generate_options

stats = Late("scipy.stats")
SAMPLING = {"temperature": 0.8, "top_p": 0.95, "top_k": 0, "min_p": 0.0}


@pytest.mark.slow
@pytest.mark.random
def test_a_seed_gives_one_text_whatever_the_draft_mode_length_and_delays() -> None:
    target, draft = demo_pair()
    cases = [
        ({}, draft, {"mode": "sync", "n_draft": 4}),
        ({}, draft, {"mode": "async", "n_draft": 4}),
        ({}, draft, {"mode": "async"}),
        ({}, target, {"mode": "async", "n_draft": 8}),
        ({"delay": (2000, 5)}, draft, {"mode": "async", "n_draft": 4}),
    ]
    cases += [({}, draft, {"mode": "async", "n_draft": 16})] if LARGE else []
    runs = [(p, seed) for seed, p in enumerate(PROMPTS[: size(2, 12)])]
    n_tokens = size(40, 96)

    def texts(d: Duo, **options: object) -> list[tuple[int, ...]]:
        return [d.generate(p, seed=s, max_tokens=n_tokens, **SAMPLING, **options).tokens for p, s in runs]

    with Duo(target, n_ctx=512, strict=True) as d:
        plain = texts(d)
        assert len(set(plain)) == len(runs)
        assert texts(d) == plain
        other = [d.generate(p, seed=s + 100, max_tokens=n_tokens, **SAMPLING).tokens for p, s in runs]
        assert other != plain
    for engine, guesser, wanted in cases:
        with SwitchedDuo(target, guesser, n_ctx=512, strict=True, **engine) as d:
            assert texts(d, **wanted) == plain, f"{engine} {wanted}"


def _cells(probabilities: dict[int, float], n: int) -> list[int]:
    """Tokens that are expected ten times or more."""
    return [t for t, p in probabilities.items() if n * p >= 10]


def _chi_square(counts: Counter[int], probabilities: dict[int, float], n: int) -> float:
    """p-value; other tokens than these count as one."""
    expected = {t: n * p for t, p in probabilities.items()}
    large = _cells(probabilities, n)
    seen = [counts[t] for t in large] + [n - sum(counts[t] for t in large)]
    want = [expected[t] for t in large] + [n - sum(expected[t] for t in large)]
    if want[-1] < 1e-6:
        seen, want = seen[:-1], want[:-1]
    return float(stats.chisquare(seen, np.array(want) * sum(seen) / sum(want)).pvalue)


def _filtered(d: Duo, prompt: list[int]) -> dict[int, float]:
    """The target's next-token distribution after top-p and temperature, computed apart; {}: too wide to count."""
    top = d.generate(prompt, max_tokens=1, temperature=0, logprobs=100, mode="plain").logprobs[0].top
    ids, logp = np.array([t for t, _ in top]), np.array([p for _, p in top])
    # llama.cpp's order: top-p on the model's own distribution, then temperature.
    keep = int(np.searchsorted(np.cumsum(np.exp(logp)), SAMPLING["top_p"])) + 1
    if keep >= len(top):
        return {}
    q = np.exp(logp[:keep] / SAMPLING["temperature"])
    return dict(zip(ids[:keep].tolist(), (q / q.sum()).tolist(), strict=True))


@pytest.mark.daily  # each seed's text is plain's, and test_accept counts draws
@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("mode", ["plain", "sync"])
def test_the_distribution_is_the_targets(mode: str) -> None:
    """Draws of the next token that the draft has guessed before (in sync: async waits for no guess)."""
    n, n_tokens = (size(300, 5_000), 1) if mode == "plain" else (size(300, 10_000), 2)
    with SwitchedDuo(*demo_pair(), n_ctx=512, always=True) as d:
        # A context with several next tokens that come often enough to be counted.
        prompt, want = next((ids, w) for ids in map(d.tokenize, PROMPTS) if len(_cells(w := _filtered(d, ids), n)) > 5)
        counts: Counter[int] = Counter()
        n_guessed = 0
        for seed in range(n):
            # The prompt is cached after the first call.
            r = d.generate(prompt, seed=seed, max_tokens=n_tokens, mode=mode, n_draft=1, **SAMPLING)
            n_guessed += r.from_draft[0]
            counts[r.tokens[0]] += 1
    assert set(counts) <= set(want), "a token came that the filters exclude"
    assert _chi_square(counts, want, n) > 1e-4
    assert mode == "plain" or n_guessed > n / 10, "the draft's guesses did not take part"


@pytest.mark.daily
@pytest.mark.slow
@pytest.mark.random
def test_acceptance_with_shared_noise_is_like_greedys() -> None:
    with SwitchedDuo(*demo_pair(), n_ctx=512, always=True) as d:

        def rate(**options: object) -> float:
            n = k = 0
            for seed, p in enumerate(PROMPTS[: size(8, len(PROMPTS))]):
                d.generate(p, seed=seed, max_tokens=size(128, 256), mode="sync", n_draft=1, **options)
                n, k = n + d.timings["draft_n"], k + d.timings["draft_n_accepted"]
            return k / n

        greedy, seeded = rate(temperature=0), rate(**SAMPLING)
    # The figures of record are in benchmarks/. Independent draws would agree on less than half as many. The texts are
    # others, and on machines without AVX-512 easier ones for the draft.
    assert -0.05 < seeded - greedy < 0.1, f"greedy {greedy:.3f}, temperature 0.8 {seeded:.3f}"


def test_noise_is_standard_gumbel_and_depends_on_all_its_keys() -> None:
    x = np.array([_core.noise(seed, pos, token) for seed in range(10) for pos in range(40) for token in range(50)])
    assert stats.kstest(x, stats.gumbel_r.cdf).pvalue > 1e-4
    assert len(set(x.tolist())) > 0.99 * len(x)
    assert _core.noise(1, 2, 3) == _core.noise(1, 2, 3)


def test_a_draft_ranks_tokens_that_only_its_own_filters_drop() -> None:
    """Target and draft filter their own logits, so a draft must prepare for tokens beyond its own selection."""
    _, draft = demo_pair()
    o = options(str(draft), 1, [], 512)
    as_draft, alone = _core.Probe(o, is_draft=True), _core.Probe(o)
    n_narrow = 0
    for how in ({"temperature": 0.8, "min_p": 0.3}, {"temperature": 1.2}, {"temperature": 0.8, "xtc_probability": 1.0}):
        wanted = generate_options(how, "generate")
        for seed, prompt in enumerate(PROMPTS[:6]):
            ids = as_draft.tokenize(prompt)[:48]
            as_draft.decode(ids)
            alone.decode(ids)
            for i in range(8, len(ids)):
                drafted = as_draft.candidates(i, sampling(wanted, seed), ids[: i + 1], 8)
                kept = alone.candidates(i, sampling(wanted, seed), ids[: i + 1], 64)
                assert drafted[0][0] in [token for token, _ in kept], "its own selection comes first"
                assert len({token for token, _ in drafted}) == 8
                logps = [logp for _, logp in drafted]
                assert logps == sorted(logps, reverse=True)
                assert np.exp(logps).sum() < 1 + 1e-5
                n_narrow += len(kept) < 8
    assert n_narrow > 100, "the filters left fewer tokens than were ranked"


def test_a_temperature_of_0_chooses_the_most_probable_token(strict_pair: Duo) -> None:
    def text(**o: Any) -> tuple[int, ...]:
        return strict_pair.generate(PROMPTS[0], max_tokens=40, **o).tokens

    greedy = text(temperature=0)
    filters = {"typical_p": 0.1, "xtc_probability": 1.0, "top_n_sigma": 0.1}
    assert text(temperature=0, **filters) == greedy
    assert text(temperature=0, dry_multiplier=2.0, dry_allowed_length=1) != greedy
    # As in llama.cpp, a range around 0 is a temperature.
    assert len({text(temperature=0, dynatemp_range=1.5, seed=s) for s in range(3)}) == 3


def test_dry_ends_a_repetition(strict_pair: Duo) -> None:
    prompt = "a b c d e f g h. " * 4
    o: dict[str, Any] = {"max_tokens": 60, "temperature": 0}
    plain = strict_pair.generate(prompt, **o).tokens
    dry = strict_pair.generate(prompt, **o, dry_multiplier=3.0, dry_penalty_last_n=-1, dry_sequence_breakers=[]).tokens

    def n_fours(tokens: tuple[int, ...]) -> int:
        whole = (*strict_pair.tokenize(prompt), *tokens)
        fours = [whole[i : i + 4] for i in range(len(whole) - 3)]
        return sum(fours.index(x) < i for i, x in enumerate(fours) if i >= len(whole) - len(tokens))

    assert n_fours(plain) > 2 * n_fours(dry)
