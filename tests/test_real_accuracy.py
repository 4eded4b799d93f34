"""Small real models: duo's logits and texts against those of llama_cpp.Llama, which has the stock kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from conftest import STOCK, need_llama_cpp, needs_kernels
from real_files import GEMMA3, SMOLLM2, TALES, need_models

from duo import Duo, _core
from duo.benchmark import doctor
from duo.benchmark.doctor import log_softmax

pytestmark = [pytest.mark.real, pytest.mark.slow]

Rows = npt.NDArray[np.float64]
N_TOKENS = 24
NEAR_TIE = 0.4  # nats between the two best tokens: other roundings may choose the other one (0.28 was seen)


class Written(NamedTuple):
    """A greedy text of llama_cpp.Llama: its tokens, and the log-probabilities that each was chosen from."""

    prompt: list[int]
    tokens: tuple[int, ...]
    rows: Rows


@pytest.fixture(scope="module", params=[SMOLLM2, GEMMA3])
def path(request: pytest.FixtureRequest) -> Path:
    (found,) = need_models(request.param)
    return found


@pytest.fixture(scope="module")
def stock(path: Path) -> Iterator[list[Written]]:
    need_llama_cpp()
    import llama_cpp

    llama = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
    yield [_write(llama, prompt) for prompt in TALES]
    llama.close()


def _write(llama: Any, prompt: str) -> Written:
    ids = llama.tokenize(prompt.encode(), special=True)
    tokens: list[int] = []
    llama.reset()
    llama.eval(ids)
    while len(tokens) < N_TOKENS:
        best = int(llama.scores[llama.n_tokens - 1].argmax())
        if llama_ends(llama, best):
            break
        tokens.append(best)
        llama.eval([best])
    n = len(ids) + len(tokens)
    return Written(ids, tuple(tokens), log_softmax(np.array(llama.scores[len(ids) - 1 : n])))


def llama_ends(llama: Any, token: int) -> bool:
    import llama_cpp

    return bool(llama_cpp.llama_vocab_is_eog(llama._model.vocab, token))


def assert_same_up_to_a_near_tie(ours: tuple[int, ...], theirs: Written) -> bool:
    """Whether all is the same."""
    if ours == theirs.tokens:
        return True
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs.tokens, strict=False)) if a != b), len(theirs.tokens))
    first, second = np.sort(theirs.rows[at])[::-1][:2]
    assert first - second < NEAR_TIE, f"token {at} is another, and nothing else is near it"
    return False


def test_stock_kernels_write_the_text_of_llama_cpp(path: Path, stock: list[Written]) -> None:
    """The same tokens in the same passes. Strict has passes of other widths, and so another order of sums."""
    with Duo(path, n_ctx=256, n_threads=1, cpu_kernels="stock", flash_attn="off") as d:
        found = [d.generate(w.prompt, temperature=0, max_tokens=N_TOKENS).tokens for w in stock]
    assert found == [w.tokens for w in stock]
    with Duo(path, path, n_ctx=256, n_threads=1, n_threads_draft=1, **STOCK) as d:
        found = [d.generate(w.prompt, temperature=0, max_tokens=N_TOKENS, n_draft=4).tokens for w in stock]
    same = [assert_same_up_to_a_near_tie(*pair) for pair in zip(found, stock, strict=True)]
    assert any(same)


@needs_kernels
def test_duos_kernels_have_close_logits(path: Path, stock: list[Written]) -> None:
    probe = _core.Probe(doctor.options(str(path), 1, _core.kernel_types(), 256))
    assert probe.n_duo_products > 0
    for w in stock:
        probe.decode([*w.prompt, *w.tokens], 0)
        ours = log_softmax(probe.logits())[len(w.prompt) - 1 :]
        kl = (np.exp(w.rows) * (w.rows - ours)).sum(axis=1)
        assert kl.mean() < 0.02 and kl.max() < 0.15
        # Where another token is the best one, both are nearly as good.
        n = np.arange(len(w.tokens))
        assert (w.rows[n, w.tokens] - w.rows[n, ours.argmax(axis=1)[n]] < NEAR_TIE).all()
    with Duo(path, path, n_ctx=256, n_threads=1, n_threads_draft=1, cpu_kernels="duo") as d:
        found = [d.generate(w.prompt, temperature=0, max_tokens=N_TOKENS, n_draft=4).tokens for w in stock]
    same = [assert_same_up_to_a_near_tie(*pair) for pair in zip(found, stock, strict=True)]
    assert any(same)
