"""Experts that are fetched before their routers have chosen them: what is foreseen, and that texts do not change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT, needs_kernels
from gguf import GGUFReader
from model_files import Shape, options, random_model
from packed_files import packed_file
from prompts import PROMPTS
from trained_files import MIXTURE

from duo import BadValueError, Duo, _core
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.gguf_tools.widen import widen
from duo.models.demo import demo_pair
from duo.placement import packed

pytestmark = needs_kernels

N_EXPERT, N_USED = 16, 4
GREEDY: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
LIMITS: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "n_draft": 3}


@pytest.fixture
def always() -> Iterator[None]:
    """Although nothing has to be read from a disk."""
    _core.foresee_experts("always")
    yield
    _core.foresee_experts("off")


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained mixture, so wide that duo's kernels compute all of it, with its packed file beside it."""
    model = tmp_path_factory.mktemp("packed") / "mixture.gguf"
    widen(MIXTURE, model, n_ff=64)
    packed_file(model)
    return model


def foreseeing(model: Path) -> _core.Probe:
    o = options(model)
    o.packed = (os.fsencode(packed.default_path(str(model))), packed.source_of(str(model)), False)
    p = _core.Probe(o)
    assert p.n_from_file and not p.warning
    return p


def written(model: Path, *modes: str) -> list[list[tuple[int, ...]]]:
    with SwitchedDuo(model, demo_pair()[1], n_ctx=256, always=True, **EXACT) as d:
        assert d.engine.target.packed_file
        return [
            [d.generate(p, mode=mode, temperature=t, seed=3, **LIMITS).tokens for p in PROMPTS[:2] for t in (0, 0.8)]
            for mode in modes
        ]


def test_texts_are_the_same_with_and_without_foresight(mixture: Path) -> None:
    _core.foresee_experts("off")
    try:
        plain = written(mixture, "plain")
        _core.foresee_experts("always")
        assert written(mixture, "plain", "sync", "async") == 3 * plain
    finally:
        _core.foresee_experts("off")


@pytest.mark.usefixtures("always")
def test_experts_of_a_text_are_foreseen(mixture: Path) -> None:
    with Duo(mixture, n_ctx=256, **EXACT) as d:
        texts = [list(d.generate(p, max_tokens=48, temperature=0, ignore_eos=True).tokens) for p in PROMPTS[:3]]
    p = foreseeing(mixture)
    assert p.expert_recall(N_USED) == {}  # no pass was seen
    for ids in texts:
        for i, token in enumerate(ids):
            p.decode([token], i)
    found = p.expert_recall(N_USED)
    by_chance = N_USED / N_EXPERT
    assert by_chance < found["recent"] < found["joined"] < 1
    assert 0 < found["token"] < found["joined"]  # many tokens come once
    assert by_chance < found["router"] < found["joined"]  # the first layer has none before it
    assert p.expert_recall(2 * N_USED)["joined"] > found["joined"]
    assert p.expert_recall(N_EXPERT)["joined"] <= 1


@pytest.mark.usefixtures("always")
def test_a_router_is_right_one_layer_early_if_the_hidden_state_stays(tmp_path: Path) -> None:
    n_layer = 4
    model = random_model(tmp_path / "m.gguf", "mixtral", "q4_K", Shape(n_layer=n_layer))
    for t in GGUFReader(model, "r+").tensors:
        if "attn_output" in t.name or "ffn_down" in t.name:
            t.data[:] = 0
        elif "ffn_norm" in t.name:
            t.data[:] = np.random.default_rng(int(t.name.split(".")[1])).uniform(0.2, 3, t.data.shape)
    packed_file(model)
    p = foreseeing(model)
    for i in range(8):
        p.decode([100 + i], 0)
    n_products, n_used, _ = p.experts_read
    found = p.expert_recall(n_used // n_products)
    assert found["router"] == (n_layer - 1) / n_layer  # the first layer has none before it
    assert found["joined"] > 0.6  # which had to learn that


def test_other_ways_to_foresee_are_refused() -> None:
    with pytest.raises(BadValueError, match="not sometimes"):
        _core.foresee_experts("sometimes")
