"""Mixtures of experts whose files have more than routers and experts, with duo's CPU kernels."""

from pathlib import Path

import pytest
from conftest import needs_kernels
from model_files import assert_same_bits, options
from tiny_models import tiny

from duo import _core
from duo.models.demo import demo_pair

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
