"""Every architecture with experts that the pinned llama.cpp has: duo's kernels compute them, with equal bits."""

from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSOR, MODEL_TENSORS
from mixture_keys import GROUPED, MERGED, NOT_TESTED, OTHER_ATTENTION, PARTLY, WHOLE
from model_files import options, run
from sizes import mostly_daily
from tiny_models import tiny

from duo import _core
from duo.models.demo import demo_pair
from duo.models.header import read_header

pytestmark = [needs_kernels, pytest.mark.full]

# Merged matrices, groups of experts, biases, weights before the product, and all layers alike.
USUAL = ("qwen35moe", "deepseek2", "gpt-oss", "llama4", "qwen3moe")
# libllama's own recurrence of these rounds by how a prompt is divided into passes.
ROUNDS = ("minimax-01",)
N_CONTEXT = 24


@pytest.mark.parametrize("name", mostly_daily([*WHOLE, *PARTLY, *OTHER_ATTENTION], USUAL))
def test_experts_of_every_architecture(name: str, tmp_path: Path) -> None:
    path = tiny(name, demo_pair()[1], tmp_path / "m.gguf", mixture=True)
    h = read_header(str(path))
    experts = [t.name for t in h.tensors if t.name.endswith("exps.weight") and len(t.shape) == 3]
    assert experts and any("gate_up" in t for t in experts) == (name in MERGED)
    assert (f"{name}.expert_group_count" in h.values) == (name in GROUPED)
    o = options(path)
    o.strict = name not in WHOLE
    whole = None
    for widths in ((8,), (4, 4), (2, 2, 2, 2), (7, 1), (1,)):
        p = _core.Probe(o)
        assert p.same_bits and p.uses_stock == (name in PARTLY)
        rows = run(p, N_CONTEXT, *widths)[N_CONTEXT:]
        assert p.experts_read[0] == len(experts), "duo's kernels compute all experts"
        whole = rows if whole is None else whole
        same = np.array_equal(rows, whole[: len(rows)])
        assert same or (name in ROUNDS and np.allclose(rows, whole[: len(rows)], atol=1e-4)), widths
    assert whole is not None and len(np.unique(whole, axis=0)) == 8


def test_no_architecture_is_forgotten() -> None:
    """Those that gguf knows; libllama may know newer ones."""
    known = {MODEL_ARCH_NAMES[a] for a, has in MODEL_TENSORS.items() if MODEL_TENSOR.FFN_DOWN_EXP in has}
    assert len(known) > 40 and known <= {*WHOLE, *PARTLY, *OTHER_ATTENTION, *NOT_TESTED}
