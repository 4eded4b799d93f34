"""A draft's estimate of the chance that the target chooses a token: about true, and never a change of order."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from prompts import PROMPTS
from sizes import mostly_daily

from duo import Duo, _core
from duo.benchmark.doctor import options
from duo.generation.job import sampling
from duo.models.demo import demo_pair
from duo.options.validate import generate_options

TARGET, DRAFT = demo_pair()
TEMPERATURES = [0.0, 0.2, 0.5, 0.8, 1.2]


class Seen(NamedTuple):
    """Over texts of the target: what its draft said of its best two candidates, and whether they were right."""

    said: "np.ndarray[tuple[int, int], np.dtype[np.float64]]"  # (tokens, 2)
    right: "np.ndarray[tuple[int, int], np.dtype[np.float64]]"


@pytest.fixture(scope="module")
def draft() -> _core.Probe:
    return _core.Probe(options(str(DRAFT), 1, [], 512), is_draft=True)


@pytest.fixture(scope="module")
def target() -> Iterator[Duo]:
    with Duo(TARGET, n_ctx=512) as d:
        yield d


def seen(draft: _core.Probe, target: Duo, temperature: float) -> Seen:
    said, right = [], []
    for seed, prompt in enumerate(PROMPTS[:12]):
        begin = target.tokenize(prompt)
        chosen = target.generate(begin, max_tokens=80, seed=seed, temperature=temperature, ignore_eos=True).tokens
        text = [*begin, *chosen]
        draft.decode(text)
        how = sampling(generate_options({"temperature": temperature, "ignore_eos": True}, "generate"), seed)
        for i, token in enumerate(chosen, len(begin)):
            two = [*draft.candidates(i - 1, how, text[:i], 2), (-1, -math.inf)][:2]
            said.append([math.exp(logp) for _, logp in two])
            right.append([float(guess == token) for guess, _ in two])
    return Seen(np.array(said), np.array(right))


@pytest.mark.full
@pytest.mark.parametrize("temperature", mostly_daily(TEMPERATURES, [0.5]))
def test_the_estimate_is_about_true(draft: _core.Probe, target: Duo, temperature: float) -> None:
    """960 tokens: a share of 70% is counted within 3% of itself, with two standard deviations."""
    s = seen(draft, target, temperature)
    assert s.right[:, 0].mean() > 0.5
    assert abs(s.said - s.right).mean() < 0.4
    assert abs(s.said.mean(0) - s.right.mean(0)).max() < 0.1
    # A second guess is worth its row at low temperatures, too.
    assert 0.75 < s.said[:, 1].mean() / s.right[:, 1].mean() < 1.33
    # And by what was said: guesses that are called safe are, and others are not.
    safe = s.said[:, 0] > 0.9
    assert s.right[safe, 0].mean() > 0.85
    assert s.right[~safe, 0].mean() < s.right[safe, 0].mean() - 0.2


def test_chances_add_up_and_a_draft_has_all_candidates_of_a_target(draft: _core.Probe) -> None:
    as_target = _core.Probe(options(str(DRAFT), 1, [], 512))
    text = draft.tokenize(PROMPTS[0])
    draft.decode(text)
    as_target.decode(text)
    for temperature in TEMPERATURES:
        how = sampling(generate_options({"temperature": temperature}, "generate"), 5)
        for i in range(1, len(text)):
            found = draft.candidates(i - 1, how, text[:i], 64)
            chances = [math.exp(logp) for _, logp in found]
            assert chances == sorted(chances, reverse=True)
            assert sum(chances) == pytest.approx(1, abs=1e-4)
            # The draft ranks tokens, too, that only its own filters drop; those come behind its own choice.
            kept = [t for t, _ in as_target.candidates(i - 1, how, text[:i], 40)]
            assert found[0][0] in kept and set(kept) <= {t for t, _ in found}


def test_an_unknown_row_is_reported_in_one_sentence(draft: _core.Probe) -> None:
    draft.decode([5, 6])
    for row in (-1, 2):
        with pytest.raises(Exception, match="was not in the last pass"):
            draft.candidates(row, _core.Sampling(), [5, 6], 2)
