"""A draft head whose tensors are not those that its header says is refused by the headers, before anything loads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dflash_models
import numpy as np
import pytest
from gguf_files import U32, Array, Value, rewrite
from sizes import mostly_daily, size

from duo import Duo, DuoError
from duo.errors import BadValueError
from duo.gguf_tools.random_head import RandomHeadShape, random_head, random_weights, write_head
from duo.models.demo import demo_pair
from duo.placement.compatibility import check_pair
from duo.placement.devices import Device

pytestmark = pytest.mark.full

TARGET, _ = demo_pair()
EAGLE3 = RandomHeadShape(n_embd=64, n_ff=96, n_head=2, head_dim=32, n_draft_vocab=64)
DFLASH = dflash_models.BlockShape(n_ff=96, n_draft_vocab=64, n_layer=1, n_rank=8)


def eagle3(to: Path, put: Mapping[str, Array | None]) -> Path:
    weights = random_weights(TARGET, EAGLE3, seed=1) | dict(put)
    write_head(TARGET, to, EAGLE3, {n: x for n, x in weights.items() if x is not None})
    return to


def dflash(to: Path, put: Mapping[str, Array | None]) -> Path:
    weights = dflash_models.random_weights(DFLASH, 4096) | dict(put)
    return dflash_models.write_head(TARGET, to, DFLASH, {n: x for n, x in weights.items() if x is not None}, half=True)


def refused(path: Path) -> str:
    """The sentence by which `duo check` and loading refuse the head; both are the same."""
    try:
        why = check_pair(TARGET, path, []).why_not
    except BadValueError as corrupt:
        why = str(corrupt)
    with pytest.raises(DuoError) as e:
        Duo(TARGET, path, n_ctx=256)
    assert str(e.value) == why
    return why


@pytest.mark.parametrize("write", mostly_daily([eagle3, dflash], [eagle3]))
def test_every_tensor_has_the_shape_that_the_header_says(write: Any, tmp_path: Path) -> None:
    good: dict[str, Array] = (
        random_weights(TARGET, EAGLE3, seed=1) if write is eagle3 else dflash_models.random_weights(DFLASH, 4096)
    )
    assert check_pair(TARGET, write(tmp_path / "good.gguf", {}), []).compatible
    optional = {"token_embd.weight", "output.weight", "d2t"} | (
        {n for n in good if "attn_v" in n} if write is dflash else set()
    )
    for name, x in list(good.items())[:: size(6, 1)]:
        if name in ("markov_w1.weight", "d2t"):
            continue  # it says itself what shape it has
        why = check_pair(TARGET, write(tmp_path / "bad.gguf", {name: x[..., :-1]}), []).why_not
        assert re.search(rf"bad.gguf has a tensor {re.escape(name)} of [\dx ]+ numbers, and by its header it has", why)
        if name not in optional:
            why = check_pair(TARGET, write(tmp_path / "bad.gguf", {name: None}), []).why_not
            assert f"has no tensor {name}, which such a head needs" in why
    why = refused(write(tmp_path / "bad.gguf", {"blk.0.attn_q.weight": good["blk.0.attn_q.weight"][:-1]}))
    assert "blk.0.attn_q.weight" in why
    why = refused(write(tmp_path / "bad.gguf", {"more": np.ones(3, np.float32)}))
    assert "has a tensor more, which such a head does not have" in why


@pytest.mark.parametrize("write", [eagle3, dflash])
def test_rows_of_the_output_are_tokens(write: Any, tmp_path: Path) -> None:
    """Without a list of what it proposes, each row is a token of the vocabulary."""
    n_embd = EAGLE3.n_embd if write is eagle3 else DFLASH.n_embd
    put = {
        "d2t": None,
        "output.weight": np.ones((64, n_embd), np.float32),
        "markov_w1.weight": None,
        "markov_w2.weight": None,
    }
    why = check_pair(TARGET, write(tmp_path / "bad.gguf", put), []).why_not
    assert "an output matrix of another number of rows than its vocabulary has tokens (4096)" in why


def test_numbers_of_the_header_make_sense(tmp_path: Path) -> None:
    good = eagle3(tmp_path / "good.gguf", {})
    values: dict[str, tuple[Value | None, str]] = {
        "attention.head_count": ((U32, 0), "eagle3.attention.head_count is 0, which is not between 1 and 16384"),
        "attention.head_count_kv": ((U32, 4), "2 heads for 4 of keys"),
        "feed_forward_length": (None, "impossible value of eagle3.feed_forward_length, or none"),
        "attention.key_length": (
            (U32, 48),
            "blk.0.attn_q.weight of 128 x 64 numbers, and by its header it has 128 x 96",
        ),
    }
    for key, (value, said) in values.items():
        put, drop = ({f"eagle3.{key}": value}, []) if value else ({}, [f"eagle3.{key}"])
        assert said in refused(rewrite(good, tmp_path / f"{key}.gguf", put=put, drop=drop))


def test_a_head_without_an_output_matrix_wants_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "head.gguf"
    random_head(TARGET, path, seed=1, shape=RandomHeadShape(n_embd=320, n_head=5, own_output=False))
    gpu = Device("CUDA0", "a GPU", "gpu", 1 << 30, 1 << 30)
    assert check_pair(TARGET, path, []).compatible
    assert "so both must be on the CPU (-dev none -devd none)" in check_pair(TARGET, path, [gpu]).why_not
    assert check_pair(TARGET, path, [gpu], device="none", device_draft="none").compatible
