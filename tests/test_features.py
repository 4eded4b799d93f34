"""The hidden states of the target that a draft head reads: the inputs of some of its layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_files import Array, tiny_gemma3
from model_files import TOKENS, options

from duo import DuoError, _core
from duo.models.demo import demo_pair
from duo.placement import kernels

TARGET, DRAFT = demo_pair()
LAYERS = [1, 2, 3]
N_EMBD = 320


def probe(layers: list[int] | None = None, path: Path = TARGET) -> _core.Probe:
    o = options(path) if kernels.available() else options(path, ())
    o.feature_layers = LAYERS if layers is None else layers
    return _core.Probe(o)


def passes(p: _core.Probe, tokens: list[int], *widths: int) -> tuple[Array, Array]:
    """Features and logits of the tokens, evaluated in passes of these widths."""
    rows, pos = [], 0
    for n in widths:
        p.decode(tokens[pos : pos + n], pos)
        rows.append((p.features(), p.logits()))
        pos += n
    return np.concatenate([f for f, _ in rows]), np.concatenate([x for _, x in rows])


def test_features_are_those_of_each_token_and_of_what_came_before() -> None:
    p = probe()
    features, _ = passes(p, TOKENS, 24)
    assert features.shape == (24, 3 * N_EMBD)
    assert np.isfinite(features).all()
    assert (np.abs(features).max(1) > 0).all()
    assert len(np.unique(features, axis=0)) == 24
    other = list(TOKENS)
    other[10] += 1
    changed = (passes(p, other, 24)[0] != features).any(1)
    assert not changed[:10].any()
    assert changed[10:].all()


def test_layers_come_one_after_the_other_and_the_first_reads_the_embedding() -> None:
    in_turn = np.concatenate([passes(probe([i]), TOKENS, 8)[0] for i in (0, 3)], axis=1)
    assert np.array_equal(passes(probe([0, 3]), TOKENS, 8)[0], in_turn)
    first = passes(probe([0]), [TOKENS[5], TOKENS[7], TOKENS[5]], 3)[0]
    assert np.array_equal(first[0], first[2])  # position and context are not in it yet


@pytest.mark.skipif(not kernels.available(), reason="stock kernels round by width")
def test_width_does_not_change_features_and_they_do_not_change_logits() -> None:
    p = probe()
    features, logits = passes(p, TOKENS, *[1] * 24)
    for widths in ((2,) * 12, (3,) * 8, (4,) * 6, (24,)):
        again = passes(p, TOKENS, *widths)
        assert np.array_equal(again[0], features)
        assert np.array_equal(again[1], logits)
    assert np.array_equal(passes(probe([]), TOKENS, 4, 20)[1], logits)


def test_what_cannot_be_had_is_refused(tmp_path: Path) -> None:
    assert passes(probe([]), TOKENS, 4)[0].shape == (4, 0)
    for layers in ([4], [-1], [1, 2, 400]):
        with pytest.raises(DuoError, match=r"needs the input of layer .* has the layers 0 to 3"):
            probe(layers)
    gemma = tiny_gemma3(DRAFT, tmp_path / "gemma3.gguf", 64)
    with pytest.raises(DuoError, match=r"is a gemma3 model, and llama.cpp does not give the hidden states"):
        probe([1], gemma)
