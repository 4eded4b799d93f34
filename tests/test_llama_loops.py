"""llama.cpp's own loops, with which `make bench` compares duo: they are built here, and write what duo writes."""

import sys
from pathlib import Path

import pytest

from duo import Duo
from duo.models.demo import demo_pair

sys.path.insert(0, str(Path(__file__).parents[1]))

MIXTURE = Path(__file__).parent / "data" / "mixture-target.gguf"  # with an MTP layer
PROMPT = "Once upon a time there was a little girl"


@pytest.mark.daily
@pytest.mark.slow  # compiles llama.cpp's speculation where `make demo` has left it out
def test_they_write_what_duo_writes_with_stock_kernels() -> None:
    from benchmarks.llama_cpp.llama_cpp import Mtp, run, run_plain, run_speculative

    target, draft = demo_pair()
    with Duo(target, n_ctx=256, cpu_kernels="stock", n_threads=1) as d:
        expected = list(d.generate(PROMPT, temperature=0, max_tokens=24).tokens)
    [plain] = run_plain(target, [PROMPT], n_predict=24, n_ctx=256)
    [turns] = run_speculative(target, draft, [PROMPT], n_predict=24, n_ctx=256, n_draft=3)
    assert plain.tokens[:8] == expected[:8]  # stock kernels round differently by width, so texts may part later
    assert turns.tokens[:8] == expected[:8]
    assert turns.n_passes < plain.n_passes
    assert 0 < turns.n_accepted <= turns.n_drafted
    [plain] = run_plain(MIXTURE, [PROMPT], n_predict=24, n_ctx=256)
    [mtp] = run(Mtp(MIXTURE, n_predict=24, n_ctx=256, n_draft=1), [PROMPT])
    assert mtp.tokens[:8] == plain.tokens[:8]
    assert 0 < mtp.n_accepted < mtp.n_drafted and mtp.n_passes < plain.n_passes
