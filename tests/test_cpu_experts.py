"""Mixtures of experts whose files have more than routers and experts, with duo's CPU kernels."""

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels
from model_files import assert_same_bits, options
from tiny_models import tiny

from duo import _core
from duo.models.demo import demo_pair
from duo.models.header import read_header

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks

pytestmark = [needs_kernels, pytest.mark.full]


@pytest.mark.parametrize("name", ["qwen2moe", "gpt-oss"])
def test_experts_with_a_shared_one_or_biases(name: str, tmp_path: Path) -> None:
    """A router of a single row, and matrices of biases, which are no products."""
    path = tiny(name, demo_pair()[1], tmp_path / "m.gguf")
    p = _core.Probe(options(path))
    assert not p.uses_stock and p.same_bits
    assert_same_bits(path, widths=(1, 2, 3, 9, 33), threads=(1, 2))
    moved = options(path)
    moved.override_tensors = [(r"ffn_gate_inp\.weight", "CPU")]
    assert not _core.Probe(moved).uses_stock


def test_a_pass_tells_how_many_experts_it_read(tmp_path: Path) -> None:
    path = tiny("qwen2moe", demo_pair()[1], tmp_path / "m.gguf")
    h = read_header(str(path))
    experts = [t for t in h.tensors if t.name.endswith("_exps.weight")]
    n_used, n_all = h.values["qwen2moe.expert_used_count"], experts[0].shape[2]
    p = _core.Probe(options(path))
    p.decode([5], 0)
    assert p.experts_read[:2] == (len(experts), len(experts) * n_used)
    p.decode(list(range(5, 37)), 0)
    n_products, n_distinct, n_bytes = p.experts_read
    assert n_products == len(experts) and len(experts) * n_used < n_distinct <= len(experts) * n_all
    assert n_bytes > 0
    dense = _core.Probe(options(demo_pair()[1]))
    dense.decode([5], 0)
    assert dense.experts_read == (0, 0, 0)


@pytest.mark.daily
def test_random_mixtures_whose_neighbouring_tokens_share_experts(tmp_path: Path) -> None:
    from benchmarks.mixture_file import MixtureShape
    from benchmarks.random_mixture import likeness, made, neighbours

    shape = MixtureShape(n_layer=2, n_embd=256, n_expert=64, n_used=8, n_ff=64, n_head=4, n_kv=2, n_head_dim=64)
    assert likeness(41, 8, shape) < 0.1 < 0.4 < likeness(24, 8, shape) < likeness(12, 8, shape)
    p = _core.Probe(options(made(tmp_path / "m.gguf", shape, likeness(24, 8, shape))))
    found = []
    for ids in neighbours(12, 64 + 8):
        p.decode(ids[:64], 0)
        p.decode(ids[64:], 64)
        n_products, n_distinct, _ = p.experts_read
        found.append(n_distinct / n_products)
    assert n_products == 6 and 21 < np.mean(found) < 27
