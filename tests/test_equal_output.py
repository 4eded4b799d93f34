"""Greedy text is the target's alone: async = sync = plain, token for token, whatever the draft.

duo's CPU kernels give the same bits at every width, and stock ones do under strict=True: any difference here is a bug
and not a rounding.
"""

import itertools
from pathlib import Path

import pytest
from conftest import EXACT, STOCK
from prompts import PROMPTS
from sizes import mostly_daily, size

from duo import Duo
from duo.gguf_tools.random_model import randomize
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

N_TOKENS = size(64, 128)
N_PROMPTS = size(5, 40)
MODES = ("sync", "async")
LENGTHS = (1, 4, 16, "auto")


@pytest.fixture(scope="session")
def useless_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo draft with random weights: same vocabulary, nothing to say."""
    path = tmp_path_factory.mktemp("useless") / "random.gguf"
    randomize(demo_pair()[1], path, seed=7)
    return path


def greedy(d: Duo, prompt: str, **options: object) -> tuple[int, ...]:
    return d.generate(prompt, temperature=0, max_tokens=N_TOKENS, **options).tokens


@pytest.fixture(scope="session")
def plain() -> list[tuple[int, ...]]:
    """Each prompt's text by the target alone."""
    with Duo(demo_pair()[0], n_ctx=512, **EXACT) as d:
        texts = [greedy(d, p) for p in PROMPTS[:N_PROMPTS]]
    assert sum(len(t) for t in texts) > 0.9 * N_TOKENS * N_PROMPTS
    return texts


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("draft", mostly_daily(["demo", "itself", "useless"], ["demo"]))
def test_text_is_the_targets(draft: str, plain: list[tuple[int, ...]], useless_draft: Path) -> None:
    target, small = demo_pair()
    path = {"demo": small, "itself": target, "useless": useless_draft}[draft]
    n_drafted = n_accepted = 0
    with Duo(target, path, n_ctx=512, **EXACT) as d:
        for i, prompt in enumerate(PROMPTS[:N_PROMPTS]):
            # All lengths and modes for every eighth prompt, and each prompt with two of them.
            cases = list(itertools.product(MODES, LENGTHS))
            for mode, length in cases if i % 8 == 0 else (cases[i % 8], cases[(i + 4) % 8]):
                text = greedy(d, prompt, mode=mode, n_draft=length)
                assert text == plain[i], f"prompt {i}, {mode}, draft length {length}"
                if length != "auto" and mode == "sync":  # async may verify second guesses too
                    n_drafted += d.timings["draft_n"]
                    n_accepted += d.timings["draft_n_accepted"]
    assert n_drafted > 25 * N_PROMPTS, "nothing was speculated, so nothing was tested"
    rate = n_accepted / n_drafted
    assert rate > 0.97 if draft == "itself" else rate < 0.05 if draft == "useless" else 0.15 < rate < 0.9


@pytest.mark.daily  # test_text_is_the_targets has each of these prompts
@pytest.mark.parametrize("mode", MODES)
def test_whole_texts_in_the_default_setting_of_each_mode(mode: str, plain: list[tuple[int, ...]]) -> None:
    with Duo(*demo_pair(), n_ctx=512, **EXACT) as d:
        for i, prompt in enumerate(PROMPTS[:N_PROMPTS]):
            assert greedy(d, prompt, mode=mode, n_draft=4) == plain[i], f"prompt {i}"


@pytest.mark.full
def test_whole_texts_with_stock_kernels_under_strict() -> None:
    with Duo(*demo_pair(), n_ctx=512, **STOCK) as d:
        for prompt in PROMPTS[: N_PROMPTS : size(4, 2)]:
            right = greedy(d, prompt, mode="plain")
            for mode in MODES:
                assert greedy(d, prompt, mode=mode, n_draft=4) == right, f"{prompt}, {mode}"


@pytest.mark.parametrize("seed", mostly_daily(range(3), [1, 2]))
def test_text_does_not_depend_on_timing(seed: int, plain: list[tuple[int, ...]]) -> None:
    with SwitchedDuo(*demo_pair(), n_ctx=512, **EXACT, delay=(3000, seed)) as d:
        for i in range(seed, N_PROMPTS, size(4, 8)):
            mode = MODES[i % 2]
            length = LENGTHS[(i // 2 + seed) % 4]
            text = d.generate(PROMPTS[i], temperature=0, max_tokens=min(96, N_TOKENS), mode=mode, n_draft=length).tokens
            assert text == plain[i][:96], f"prompt {i}, {mode}, draft length {length}"


@pytest.mark.daily
@pytest.mark.full
def test_threads_and_repetition_do_not_change_the_text(plain: list[tuple[int, ...]]) -> None:
    with Duo(*demo_pair(), n_ctx=512, **EXACT, n_threads=2, n_threads_draft=2) as d:
        for i in (0, N_PROMPTS // 2, N_PROMPTS - 1):
            for _ in range(2):
                assert greedy(d, PROMPTS[i], n_draft=4) == plain[i]
