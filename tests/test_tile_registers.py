"""PyTorch beside duo in one process: on a processor with AMX it changes tile registers that ggml's kernels rely on."""

from __future__ import annotations

import os

import pytest
from conftest import PYTORCH_WITHOUT_AMX, need_llama_cpp, needs_kernels, run_python
from needs import need_torch

from duo import _core

WITH_TILES = "AMX" in _core.extra_buffers()  # elsewhere there are no registers to change
# Products in BF16 configure the tiles of the calling thread and of its OpenMP team, which may be ggml's, too.
PROGRAM = """
import sys
import llama_cpp, torch
from duo import _core
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

target, draft = map(str, demo_pair())
n = 512 if "AMX" in _core.extra_buffers() else 64  # elsewhere such products change nothing
weights = torch.randn(n, n).bfloat16()
torch.set_num_threads(2)

def other_library(ids, scores):
    (weights @ weights).sum().item()
    return scores

kernels, *others = sys.argv[1:]
if "llama_cpp" in others:
    llama_cpp.Llama(target, n_ctx=256, n_threads=2, verbose=False)("Once upon a time there was a", max_tokens=3)
if "torch" in others:
    other_library(None, None)
hook = {"logits_processor": other_library} if "hook" in others else {}
with SwitchedDuo(target, draft, n_ctx=1024, n_threads=2, cpu_kernels=kernels, always=True) as d:
    for mode in ("plain", "sync", "async"):
        o = {"max_tokens": 12, "temperature": 0, "mode": mode, "n_draft": 12, **hook}
        print([d.generate(p, **o).tokens for p in ("Once upon a time there was a king", "The rain fell")])
"""


def texts(kernels: str, *others: str) -> list[str]:
    """By mode: plain, sync, async."""
    env = {k: v for k, v in os.environ.items() if k not in PYTORCH_WITHOUT_AMX}
    done = run_python(PROGRAM, kernels, *others, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param("stock", marks=pytest.mark.proof),
        pytest.param("duo", marks=[needs_kernels, pytest.mark.daily]),
    ],
)
def test_pytorch_and_llama_cpp_in_one_process(kernels: str) -> None:
    need_llama_cpp()
    need_torch()
    alone = texts(kernels)
    for others in (("llama_cpp", "torch"), ("torch",), ("torch", "hook")) if WITH_TILES else (("torch", "hook"),):
        found = texts(kernels, *others)
        # Stock kernels give other bits at other widths, so their guesses may change a text.
        assert found == alone if kernels == "duo" else found[0] == alone[0], others
        assert len(found) == 3


# What libggml logs while it packs weights goes to llama_cpp's function, which needs Python's lock.
LOGGED = """
import llama_cpp
from duo import _core
print(_core.product_errors("q8_0", bytes(32 * 272), 256, 4))
"""


@needs_kernels
def test_products_are_compared_while_llama_cpp_reads_the_log() -> None:
    done = run_python(LOGGED)
    assert done.returncode == 0, done.stderr
