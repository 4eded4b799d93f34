"""A draft head (EAGLE-3) in libllama against the same arithmetic in numpy, and the rows that it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_files import Array
from model_files import TOKENS, options

from duo import DuoError, _core
from duo.gguf_tools.random_head import RandomHeadShape, random_head, random_weights, write_head
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
SHAPE = RandomHeadShape(n_embd=96, n_ff=160, n_head=2, head_dim=32)
MAPPED = RandomHeadShape(n_embd=96, n_ff=160, n_head=2, head_dim=32, n_draft_vocab=512)
N_FEATURES = 3 * 320


def norm(x: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def turned(x: Array, positions: Array) -> Array:
    """Interleaved RoPE. x: [rows, heads, head_dim]."""
    n = x.shape[-1] // 2
    angles = positions[:, None, None] * 10000.0 ** (-np.arange(n) / n)
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    out[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return out


def reference(
    w: dict[str, Array], s: RandomHeadShape, tokens: list[int], states: Array, pos: int
) -> tuple[Array, Array]:
    """Logits and states of the rows (tokens[i], states[i]) at positions from pos on."""
    n, positions = len(tokens), np.arange(pos, pos + len(tokens), dtype=np.float64)
    x = np.concatenate([norm(w["token_embd.weight"][tokens]), norm(states)], axis=1)
    q, k, v = ((x @ w[f"blk.0.attn_{name}.weight"].T).reshape(n, s.n_head, s.head_dim) for name in ("q", "k", "v"))
    q, k = turned(q, positions), turned(k, positions)
    scores = np.einsum("ihd,jhd->hij", q, k) / s.head_dim**0.5
    scores[:, np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = -np.inf
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    mixed = np.einsum("hij,jhd->ihd", chances, v).reshape(n, -1)
    h = states + mixed @ w["blk.0.attn_output.weight"].T
    y = norm(h)
    gate, up = y @ w["blk.0.ffn_gate.weight"].T, y @ w["blk.0.ffn_up.weight"].T
    h = h + (gate / (1 + np.exp(-gate)) * up) @ w["blk.0.ffn_down.weight"].T
    drafted = norm(h) @ w["output.weight"].T
    if s.n_draft_vocab is None:
        return drafted, h
    logits = np.full((n, w["token_embd.weight"].shape[0]), -np.inf)
    logits[:, w["d2t"]] = drafted
    return logits, h


def features(n: int) -> Array:
    return np.random.default_rng(3).standard_normal((n, N_FEATURES)).astype(np.float32)


@pytest.mark.parametrize("shape", [SHAPE, MAPPED], ids=["all tokens", "d2t"])
def test_head_computes_what_the_formula_says(shape: RandomHeadShape, tmp_path: Path) -> None:
    weights = random_weights(TARGET, shape, seed=2)
    write_head(TARGET, tmp_path / "head.gguf", shape, weights, half=False)
    exact = options(tmp_path / "head.gguf", ())
    exact.type_k = exact.type_v = "f32"
    exact.flash_attn = "off"  # it rounds to F16
    head = _core.Probe(exact, is_draft=True)
    given = features(7)
    states = head.encode(given)
    assert np.allclose(states, given @ weights["fc.weight"].T, atol=1e-4)
    head.decode(TOKENS[1:8], 1, states)
    logits, after = reference(weights, shape, TOKENS[1:8], states, 1)
    assert np.allclose(head.states(), after, atol=1e-3)
    assert np.array_equal(np.isneginf(head.logits()), np.isneginf(logits))
    assert np.isneginf(logits).any() == (shape.n_draft_vocab is not None)
    possible = ~np.isneginf(logits)
    assert np.allclose(head.logits()[possible], logits[possible], atol=2e-3)

    # A chain on the head's own states is the same, row by row; states shifted by one are something else.
    for i in range(3):
        head.decode([TOKENS[20 + i]], 8 + i, head.states()[-1:])
        states = np.concatenate([states, after[-1:]])
        logits, after = reference(weights, shape, [*TOKENS[1:8], *TOKENS[20 : 21 + i]], states, 1)
        assert np.allclose(head.logits()[-1][possible[0]], logits[-1][possible[0]], atol=5e-3)
    head.decode(TOKENS[1:7], 1, states[1:7])
    wrong = head.logits()[:, possible[0]]
    head.decode(TOKENS[1:7], 1, states[:6])
    assert np.abs(wrong - head.logits()[:, possible[0]]).max(1).min() > 0.1


def test_duos_kernels_compute_a_head_as_well(tmp_path: Path) -> None:
    random_head(TARGET, tmp_path / "head.gguf", seed=2, shape=RandomHeadShape(n_draft_vocab=2048))
    given = features(8)
    rows = []
    for types in ((), ("f16",)):
        head = _core.Probe(options(tmp_path / "head.gguf", types), is_draft=True)
        head.decode(TOKENS[1:9], 1, head.encode(given))
        assert head.n_duo_products == (9 if types and _core.kernels()[0] else 0)
        rows.append(head.logits())
    stock, ours = rows
    possible = ~np.isneginf(stock)
    assert np.array_equal(possible, ~np.isneginf(ours))
    assert np.abs(stock[possible] - ours[possible]).max() < 0.02 * np.abs(stock[possible]).max()


def test_what_a_head_cannot_take_is_refused(tmp_path: Path) -> None:
    random_head(TARGET, tmp_path / "head.gguf", seed=2, shape=SHAPE)
    head = _core.Probe(options(tmp_path / "head.gguf", ()), is_draft=True)
    with pytest.raises(DuoError, match="reads rows of 960 numbers"):
        head.encode(features(2)[:, :100])
    with pytest.raises(DuoError, match="was given 65 rows of hidden states at once"):
        head.encode(features(65))
    with pytest.raises(DuoError, match="each token needs a state of 96 numbers"):
        head.decode([1, 2], 1, np.zeros((1, 96), np.float32))
    with pytest.raises(DuoError, match="other models read none"):
        _core.Probe(options(TARGET, ())).encode(features(2))
    with pytest.raises(DuoError, match=r"is a draft head .* which writes nothing alone"):
        _core.Probe(options(tmp_path / "head.gguf", ()))
    borrowing = RandomHeadShape(n_embd=320, n_head=5, own_embedding=False, own_output=False)
    random_head(TARGET, tmp_path / "borrowing.gguf", seed=2, shape=borrowing)
    with pytest.raises(DuoError, match="only works beside its target"):
        _core.Probe(options(tmp_path / "borrowing.gguf", ()), is_draft=True)
