"""Models with a vector for each position, as GPT-2: their contexts end where the vectors do."""

from itertools import product
from pathlib import Path

import pytest
from bert_models import N_CTX, bert
from sizes import mostly_daily
from tiny_models import tiny

from duo import BadValueError, Duo
from duo.models.demo import demo_pair

N_POSITIONS = 1024  # of the tiny model


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("gpt2")
    source = demo_pair()[0]
    return str(tiny("gpt2", source, folder / "t.gguf")), str(tiny("gpt2", source, folder / "d.gguf", apart=0.1))


@pytest.mark.parametrize(
    ("kernels", "mode"), mostly_daily(product(["auto", "stock"], ["plain", "sync", "async"]), [("auto", "async")])
)
def test_a_longer_context_is_cut(pair: tuple[str, str], kernels: str, mode: str) -> None:
    prompt = [5 + i % 4000 for i in range(N_POSITIONS - 9)]
    with Duo(*pair, n_ctx=5000, n_ctx_draft=5000, cpu_kernels=kernels) as d:
        assert d.n_ctx() == N_POSITIONS
        r = d.generate(prompt, mode=mode, temperature=0, ignore_eos=True)
        assert (len(r.tokens), r.finish_reason) == (9, "length")
        with pytest.raises(BadValueError, match=f"{N_POSITIONS}"):
            d.generate([5] * (N_POSITIONS + 100))


def test_of_an_encoder_too(tmp_path: Path) -> None:
    with Duo(str(bert(tmp_path / "e.gguf")), embedding=True, n_ctx=4 * N_CTX, n_batch=4 * N_CTX) as d:
        assert d.embedder.n_most == N_CTX
        with pytest.raises(BadValueError, match=f"give 1 to {N_CTX}"):
            d.vectors([[5] * (N_CTX + 1)])
