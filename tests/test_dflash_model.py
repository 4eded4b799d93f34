"""DFlash and DSpark heads in libllama against the same arithmetic in numpy, and the rows that it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dflash_models import COPIES, MASK, BlockShape, circling_target, copying_head, follower, random_weights, write_head
from gguf_files import Array
from model_files import TOKENS, options

from duo import DuoError, _core
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
SHAPE = BlockShape(n_embd=96, n_ff=160, n_head=4, n_head_kv=2, head_dim=32)
MAPPED = BlockShape(n_embd=96, n_ff=160, n_head=4, n_head_kv=2, head_dim=32, n_draft_vocab=512)
SPARK = BlockShape(n_embd=96, n_ff=160, n_head=4, n_head_kv=2, head_dim=32, n_rank=16)
BONUS = BlockShape(n_embd=96, n_ff=160, n_head=4, n_head_kv=2, head_dim=32, n_rank=16, anchored=False)
N_VOCAB = 4096


def norm(x: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def turned(x: Array, positions: Array) -> Array:
    """RoPE of halves. x: [rows, heads, head_dim]."""
    n = x.shape[-1] // 2
    angles = positions[:, None, None] * 10000.0 ** (-np.arange(n) / n)
    first, second = x[..., :n], x[..., n:]
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles),
                           first * np.sin(angles) + second * np.cos(angles)], axis=-1)  # fmt: skip


def reference(w: dict[str, Array], s: BlockShape, features: Array, token: int, n_levels: int) -> Array:
    """Logits of the levels after the token, which comes after the features. [n_levels, n_vocab]"""
    n_known = 0 if s.n_rank and s.anchored else 1
    n, n_rows = len(features), n_levels + n_known
    given = norm(features @ w["fc.weight"].T)
    x = w["token_embd.weight"][[token] + [MASK] * (n_rows - 1)]
    before, here = np.arange(n, dtype=np.float64), np.arange(n, n + n_rows, dtype=np.float64)
    for i in range(s.n_layer):
        m = {name: w[f"blk.{i}.{name}.weight"] for name in (
            "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}  # fmt: skip
        y = norm(x)
        q = turned(norm((y @ m["attn_q"].T).reshape(n_rows, s.n_head, s.head_dim)), here)
        k, v = [], []
        for rows, positions in ((given, before), (y, here)):
            k.append(turned(norm((rows @ m["attn_k"].T).reshape(-1, s.n_head_kv, s.head_dim)), positions))
            v.append((rows @ m["attn_v"].T).reshape(-1, s.n_head_kv, s.head_dim))
        keys, values = (np.repeat(np.concatenate(a), s.n_head // s.n_head_kv, axis=1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, keys) / s.head_dim**0.5  # all see all
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", chances, values).reshape(n_rows, -1) @ m["attn_output"].T
        y = norm(x)
        gate = y @ m["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ m["ffn_up"].T)) @ m["ffn_down"].T
    drafted = norm(x[n_known:]) @ w["output.weight"].T
    for i in range(n_levels if s.n_rank else 0):
        before = token if i == 0 else int(drafted[i - 1].argmax())
        drafted[i] += w["markov_w2.weight"] @ w["markov_w1.weight"][before]
    if s.n_draft_vocab is None:
        return drafted
    logits = np.full((n_levels, N_VOCAB), -np.inf)
    logits[:, w["d2t"]] = drafted
    return logits


def features(n: int, shape: BlockShape = SHAPE) -> Array:
    return np.random.default_rng(3).standard_normal((n, len(shape.layers) * shape.n_embd)).astype(np.float32)


def probe(path: Path) -> _core.Probe:
    exact = options(path, ())
    exact.type_k = exact.type_v = "f32"
    exact.flash_attn = "off"  # it rounds to F16
    return _core.Probe(exact, is_draft=True)


@pytest.mark.parametrize("shape", [SHAPE, MAPPED, SPARK, BONUS], ids=["all tokens", "d2t", "dspark", "bonus"])
def test_head_computes_what_the_formula_says(shape: BlockShape, tmp_path: Path) -> None:
    weights = random_weights(shape, N_VOCAB)
    head = probe(write_head(TARGET, tmp_path / "head.gguf", shape, weights))
    given = features(9)
    for n_levels in (1, 3, 7):
        # Row p is made of the features of position p - 1; the last token is the block's first one.
        head.decode(TOKENS[1:7], 1, head.encode(given[:6]), only_last=True, n_levels=n_levels)
        want = reference(weights, shape, given[:6], TOKENS[6], n_levels)
        found = head.levels()
        possible = ~np.isneginf(want)
        assert np.array_equal(possible, ~np.isneginf(found))
        assert np.allclose(found[possible], want[possible], atol=2e-3)
    # The block left nothing in the cache: the text goes on as if it had not been.
    head.decode(TOKENS[7:10], 7, head.encode(given[6:]), only_last=True, n_levels=7)
    want = reference(weights, shape, given, TOKENS[9], 7)
    assert np.allclose(head.levels()[possible], want[possible], atol=2e-3)


def test_candidates_are_those_of_their_level(tmp_path: Path) -> None:
    head = probe(write_head(TARGET, tmp_path / "head.gguf", SHAPE, random_weights(SHAPE, N_VOCAB)))
    head.decode(TOKENS[1:7], 1, head.encode(features(6)), only_last=True, n_levels=7)
    greedy = _core.Sampling()
    greedy.temp = 0.0
    text = TOKENS[:7]
    for row in head.levels():
        ((token, _),) = head.candidates(5, greedy, text, 1)
        assert token == row.argmax()
        text = [*text, token]
    with pytest.raises(DuoError, match="has no logits"):
        head.candidates(4, greedy, TOKENS[:6], 1)


def test_masks_copy_what_lies_a_period_before_them(tmp_path: Path) -> None:
    """With states in their places. Without this, a mistake by one position would only cost acceptance."""
    target = circling_target(TARGET, tmp_path / "target.gguf")
    o = options(target)
    o.feature_layers = list(COPIES.layers)
    after, text = follower(N_VOCAB), [400]
    while len(text) < 48:
        text.append(int(after[text[-1]]))
    p = _core.Probe(o)
    p.decode(text[:40])
    given = p.features()
    head = _core.Probe(options(copying_head(target, tmp_path / "head.gguf")), is_draft=True)

    def right(states: Array, pos: int) -> float:
        n = len(states)
        head.decode(text[pos : pos + n], pos, head.encode(states), only_last=True, n_levels=7)
        return float(np.mean(head.levels().argmax(1) == text[pos + n : pos + n + 7]))

    assert right(given[:39], 1) == 1.0
    assert right(given[1:40], 1) == 0.0
    assert right(given[:38], 2) == 0.0
    head.decode(text[:20], 1, head.encode(given[:20]), only_last=True)
    assert right(given[19:30], 20) == 1.0  # the text goes on


def test_what_a_head_cannot_take_is_refused(tmp_path: Path) -> None:
    path = write_head(TARGET, tmp_path / "head.gguf", SHAPE, random_weights(SHAPE, N_VOCAB))
    with pytest.raises(DuoError, match="reads rows of 288 numbers"):
        probe(path).encode(features(2)[:, :100])
    with pytest.raises(DuoError, match=r"is a draft head \(DFlash\), which writes nothing alone"):
        _core.Probe(options(path, ()))
    borrowing = BlockShape(own_embedding=False, own_output=False)
    write_head(TARGET, tmp_path / "borrowing.gguf", borrowing, random_weights(borrowing, N_VOCAB))
    with pytest.raises(DuoError, match="only works beside its target"):
        _core.Probe(options(tmp_path / "borrowing.gguf", ()), is_draft=True)
