"""Duo's kernels compute every architecture with experts that the pinned llama.cpp has, low ranks, gates and matrices of
recurrent layers, with equal bits."""

from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSOR, MODEL_TENSORS
from gguf_files import Array
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
# Recurrent layers, a matrix of theirs, and how many others of the model have no kernel of duo's (dense_2, ssm_x).
RECURRENT = (("lfm2", "shortconv.in_proj", 1), ("mamba", "ssm_out", 2), ("nemotron_h", "ssm_in", 0))
N_CONTEXT = 24


WIDTHS = ((8,), (4, 4), (2, 2, 2, 2), (7, 1), (1,))


def passes(p: _core.Probe) -> list[Array]:
    """Logits of the same tokens behind the same context, by passes of these widths."""
    return [run(p, N_CONTEXT, *widths)[N_CONTEXT:] for widths in WIDTHS]


def differing(rows: list[Array]) -> list[tuple[int, ...]]:
    """The widths whose logits are not those of the first ones, bit for bit."""
    assert len(np.unique(rows[0], axis=0)) == 8
    return [w for w, x in zip(WIDTHS, rows, strict=True) if not np.array_equal(x, rows[0][: len(x)])]


def assert_near_stock(path: Path, rows: Array) -> None:
    """As near as layers that hrm_text computes several times leave them."""
    stock = run(_core.Probe(options(path, ())), N_CONTEXT, *WIDTHS[0])[N_CONTEXT:]
    assert np.corrcoef(rows.ravel(), stock.ravel())[0, 1] > 0.8


@pytest.mark.parametrize("name", mostly_daily([*WHOLE, *PARTLY, *OTHER_ATTENTION], USUAL))
def test_experts_of_every_architecture(name: str, tmp_path: Path) -> None:
    path = tiny(name, demo_pair()[1], tmp_path / "m.gguf", mixture=True)
    h = read_header(str(path))
    experts = [t.name for t in h.tensors if t.name.endswith("exps.weight") and len(t.shape) == 3]
    assert experts and any("gate_up" in t for t in experts) == (name in MERGED)
    assert (f"{name}.expert_group_count" in h.values) == (name in GROUPED)
    o = options(path)
    o.strict = name not in WHOLE
    p = _core.Probe(o)
    assert p.same_bits == (name not in ROUNDS) and p.uses_stock == (name in PARTLY)
    rows = passes(p)
    assert p.experts_read[0] == len(experts), "duo's kernels compute all experts"
    assert (name in ROUNDS) == bool(differing(rows))
    assert all(np.corrcoef(x.ravel(), rows[0][: len(x)].ravel())[0, 1] > 0.999 for x in rows)
    if name in USUAL:
        assert_near_stock(path, rows[0])


@pytest.mark.parametrize("name", mostly_daily(("minicpm3", "hrm_text"), ("minicpm3",)))
def test_low_ranks_and_gates_of_dense_architectures(name: str, tmp_path: Path) -> None:
    """attn_kv_b makes heads of keys and of values that have other sizes; attn_gate weighs the heads."""
    path = tiny(name, demo_pair()[1], tmp_path / "m.gguf")
    p = _core.Probe(options(path))
    assert p.same_bits and not p.uses_stock and p.n_duo_products == p.n_cpu_products
    rows = passes(p)
    assert not differing(rows)
    assert_near_stock(path, rows[0])


@pytest.mark.parametrize(("name", "kind", "n_stock"), mostly_daily(RECURRENT, RECURRENT[:1]))
def test_matrices_of_recurrent_layers(name: str, kind: str, n_stock: int, tmp_path: Path) -> None:
    """Duo's kernels compute them, and not the recurrence: only --strict promises equal bits."""
    path = tiny(name, demo_pair()[1], tmp_path / "m.gguf")
    types = {t.type for t in read_header(str(path)).tensors if f".{kind}" in t.name}
    assert types == {"q8_0"}
    o = options(path)
    p = _core.Probe(o)
    assert p.uses_stock and not p.same_bits and p.n_cpu_products - p.n_duo_products == n_stock
    o.strict = True
    strict = _core.Probe(o)
    assert strict.same_bits
    rows = passes(strict)
    assert not differing(rows)
    assert_near_stock(path, rows[0])


def test_no_architecture_is_forgotten() -> None:
    """Those that gguf knows; libllama may know newer ones."""
    known = {MODEL_ARCH_NAMES[a] for a, has in MODEL_TENSORS.items() if MODEL_TENSOR.FFN_DOWN_EXP in has}
    assert len(known) > 40 and known <= {*WHOLE, *PARTLY, *OTHER_ATTENTION, *NOT_TESTED}
