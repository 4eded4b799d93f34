"""PyTorch beside duo in one process: on a processor with AMX it changes tile registers that ggml's kernels rely on."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import HANG_S, need_llama_cpp

# Products in BF16 configure the tiles of the calling thread and of its OpenMP team, which may be ggml's, too.
PROGRAM = """
import sys
import llama_cpp, torch
from duo import Duo
from duo.models.demo import demo_pair

target, draft = map(str, demo_pair())
weights = torch.randn(2048, 2048).bfloat16()
torch.set_num_threads(2)

def other_library(ids, scores):
    (weights @ weights).sum().item()
    return scores

kernels, first, *hooked = sys.argv[1:]
if first == "llama_cpp":
    llama_cpp.Llama(target, n_ctx=256, n_threads=2, verbose=False)("Once upon a time there was a", max_tokens=3)
other_library(None, None)
hook = {"logits_processor": other_library} if hooked else {}
with Duo(target, draft, n_ctx=1024, n_threads=2, cpu_kernels=kernels, _always=True) as d:
    for mode in ("plain", "sync", "async"):
        o = {"max_tokens": 12, "temperature": 0, "mode": mode, "n_draft": 12, **hook}
        print([d.generate(p, **o).tokens for p in ("Once upon a time there was a king", "The rain fell")])
"""


@pytest.mark.parametrize("kernels", ["stock", "duo"])
@pytest.mark.parametrize("how", [["llama_cpp"], ["duo"], ["duo", "hook"]], ids=" ".join)
def test_pytorch_and_llama_cpp_in_one_process(how: list[str], kernels: str) -> None:
    need_llama_cpp()
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PROGRAM, kernels, *how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    if kernels == "duo":  # whose bits are the same at every width
        assert len(set(done.stdout.splitlines())) == 1
