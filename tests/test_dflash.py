"""DFlash and DSpark heads beside their target: whatever its blocks guess, the text is the target's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HELD
from dflash_models import BlockShape, circling_target, copying_head, random_head
from gguf_files import U32, rewrite, tiny_gemma3
from head_texts import (
    DAILY,
    N_TOKENS,
    OFTEN,
    SAMPLINGS,
    TEXTS,
    TREE,
    Written,
    check_same,
    guessing,
    least_drafted,
    ways,
    written,
)
from prompts import PROMPTS
from sizes import LARGE, mostly_daily, mostly_proof_of_two, size
from tiny_models import tiny

from duo import Duo, DuoError
from duo.cli.main import main
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.placement.compatibility import check_pair
from duo.placement.devices import devices

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
WAYS = ways("draft-dflash") | {"more than a block": {"n_draft": 12, "spec_type": "draft-dflash"}}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_head(TARGET, tmp_path_factory.mktemp("heads") / "dflash.gguf", BlockShape(n_draft_vocab=2048))


@pytest.fixture(scope="module")
def pair(head: Path) -> Iterator[Duo]:
    with guessing(head) as d:
        yield d


@pytest.fixture(scope="module")
def plain() -> Written:
    return written()


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target that repeats itself after eight tokens, and a head that knows that."""
    folder = tmp_path_factory.mktemp("right")
    target = circling_target(TARGET, folder / "target.gguf")
    return target, copying_head(target, folder / "head.gguf")


@pytest.mark.random
@pytest.mark.parametrize(
    ("way", "mode"), mostly_proof_of_two(WAYS, ["sync", "async"], [*OFTEN, ("more than a block", "sync")], DAILY)
)
def test_the_text_is_plains(pair: Duo, plain: Written, way: str, mode: str) -> None:
    assert check_same(pair, plain, mode, **WAYS[way]) >= least_drafted(way, mode)


def test_right_blocks_are_accepted_as_a_whole(right: tuple[Path, Path]) -> None:
    options: dict[str, Any] = {"max_tokens": 120, "ignore_eos": True}
    with Duo(right[0], n_ctx=512, **EXACT) as alone:
        want = [alone.generate(t, **options, **s).tokens for t in TEXTS for s in SAMPLINGS[:2]]
    with SwitchedDuo(*right, n_ctx=512, **HELD, **EXACT) as d:
        assert d.draft is not None
        assert d.draft.head == "dflash"
        for mode in ("sync", "async"):
            found = [d.generate(t, mode=mode, n_draft=7, **options, **s) for t in TEXTS for s in SAMPLINGS[:2]]
            assert [r.tokens for r in found] == want
            n_drafted, n_accepted = (sum(r.timings[key] for r in found) for key in ("draft_n", "draft_n_accepted"))
            assert n_accepted > 400  # in async, too: a head of blocks takes turns
            assert n_accepted / n_drafted > 0.65  # the first tokens do not repeat anything yet
            assert min(r.timings["target_passes_n"] for r in found) < 40


def test_a_text_that_goes_on_keeps_its_states(right: tuple[Path, Path]) -> None:
    with SwitchedDuo(*right, n_ctx=512, always=True, **EXACT) as d, Duo(right[0], n_ctx=512, **EXACT) as alone:
        ids = d.tokenize(TEXTS[1])
        for turn in range(4):
            r = d.generate(ids, max_tokens=40, temperature=0, mode="sync", n_draft=7)
            assert r.tokens == alone.generate(ids, max_tokens=40, temperature=0).tokens
            # The head has all of the text, so from the second turn on it copies from the first token on.
            assert turn == 0 or d.timings["draft_n_accepted"] >= 30
            ids = [*ids, *r.tokens]
        state = d.save_state()
        d.generate(TEXTS[0], max_tokens=20, temperature=0)
        d.load_state(state)
        want = alone.generate(ids, max_tokens=40, temperature=0).tokens
        assert d.generate(ids, max_tokens=40, temperature=0, mode="sync", n_draft=7).tokens == want


@pytest.mark.daily
def test_several_texts_at_once(head: Path, right: tuple[Path, Path]) -> None:
    options: dict[str, Any] = {"max_tokens": 48, "temperature": 0, "ignore_eos": True}
    for target, draft in ((TARGET, head), right):
        with Duo(target, n_ctx=1024, **EXACT) as alone:
            want = [alone.generate(p, **options).tokens for p in PROMPTS[:5]]
        with SwitchedDuo(target, draft, n_ctx=1024, n_parallel=4, **HELD, **EXACT) as d:
            for mode in ("async", "sync"):
                found = d.generate_many(PROMPTS[:5], mode=mode, n_draft=7, **options)
                assert [r.tokens for r in found] == want
                assert target == TARGET or sum(r.timings["draft_n_accepted"] for r in found) > 100


def test_a_text_that_is_cancelled(right: tuple[Path, Path]) -> None:
    with SwitchedDuo(*right, n_ctx=512, always=True, **EXACT) as d, Duo(right[0], n_ctx=512, **EXACT) as alone:
        want = alone.generate(TEXTS[2], max_tokens=60, temperature=0).tokens
        for n in (1, 5, 20):
            stream = d.stream(TEXTS[2], max_tokens=400, temperature=0, ignore_eos=True)
            for _ in range(n):
                next(stream)
            stream.close()
            assert d.generate(TEXTS[2], max_tokens=60, temperature=0).tokens == want


def test_rules_that_draw(right: tuple[Path, Path]) -> None:
    with SwitchedDuo(*right, n_ctx=512, always=True, **EXACT) as d:
        for tree in ("chain", "auto", TREE):
            r = d.generate(TEXTS[0], max_tokens=60, seed=3, temperature=0.8, mode="sync", n_draft=6, accept="rejection",
                           draft_tree=tree, ignore_eos=True)  # fmt: skip
            assert len(r.tokens) == 60
            assert r.timings["draft_n_accepted"] > 20


def test_it_takes_turns(right: tuple[Path, Path]) -> None:
    """A head of blocks can prepare nothing, so running ahead is not tried."""
    with Duo(*right, n_ctx=512, **EXACT) as d:
        for _ in range(3):
            d.generate(TEXTS[2], max_tokens=200, temperature=0, ignore_eos=True)
            assert d.timings["passes_ahead_n"] == 0
    # whether guesses pay for so small a target depends on the machine


@pytest.mark.daily
def test_a_head_may_use_its_targets_matrices(tmp_path: Path) -> None:
    for own_embedding, own_output in ((False, True), (True, False), (False, False)):
        shape = BlockShape(own_embedding=own_embedding, own_output=own_output)
        path = random_head(TARGET, tmp_path / f"{own_embedding}{own_output}.gguf", shape)
        for exact in (EXACT, {"cpu_kernels": "stock"}):
            with SwitchedDuo(TARGET, path, n_ctx=512, always=True, **exact) as d:
                r = d.generate(TEXTS[0], max_tokens=16, mode="sync", n_draft=3, temperature=0)
                assert d.timings["draft_n"] > 0
                assert not r.warning


@pytest.mark.random
@pytest.mark.parametrize("anchored", mostly_daily([True, False], [True]))
def test_dspark_heads(plain: Written, anchored: bool, tmp_path: Path) -> None:
    path = random_head(TARGET, tmp_path / "head.gguf", BlockShape(n_rank=32, anchored=anchored))
    with SwitchedDuo(TARGET, path, n_ctx=512, n_parallel=2, always=True, **EXACT) as d:
        assert d.draft is not None
        assert d.draft.head == "dspark"
        for mode in ("sync", "async"):
            for i, s in [*enumerate(SAMPLINGS)][(mode == "async" and not LARGE) :: size(4, 1)]:
                found = d.generate_many(TEXTS, max_tokens=N_TOKENS, mode=mode, n_draft=8, spec_type="draft-dspark", **s)
                assert [r.tokens for r in found] == [of_text[i] for of_text in plain]
        # A block of eight guesses eight tokens, or seven.
        d.generate(TEXTS[0], max_tokens=100, mode="sync", n_draft=8, temperature=0, ignore_eos=True)
        assert (d.timings["draft_n"] / d.timings["draft_rounds"] > 7.2) == anchored


@pytest.mark.daily  # test_mtp has an EAGLE-3 head of one
def test_a_head_of_a_recurrent_target(tmp_path: Path) -> None:
    target = tiny("qwen35", DRAFT, tmp_path / "target.gguf")
    shape = BlockShape(n_embd=256, n_head=4, n_head_kv=2, layers=(0, 1))
    path = random_head(target, tmp_path / "head.gguf", shape)
    # Its positions have several parts, as those of the target.
    parts = rewrite(path, tmp_path / "parts.gguf", put={"dflash.rope.dimension_sections": (U32, [32, 0, 0, 0])})
    strict: dict[str, Any] = {"n_ctx": 256, "strict": True}
    with Duo(target, **strict) as alone:
        want = alone.generate(TEXTS[2], max_tokens=32, temperature=0, ignore_eos=True).tokens
    for draft in (path, parts):
        with SwitchedDuo(target, draft, always=True, **strict) as d:
            for mode in ("async", "sync"):
                r = d.generate(TEXTS[2], max_tokens=32, temperature=0, ignore_eos=True, mode=mode, n_draft=3)
                assert (r.tokens, r.warning) == (want, "")
            assert d.timings["draft_n"] > 10


def test_heads_that_do_not_fit_are_refused(head: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = random_head(TARGET, tmp_path / "far.gguf", BlockShape(layers=(1, 2, 4)))
    alone = rewrite(head, tmp_path / "alone.gguf", put={"dflash.block_size": (U32, 1)})
    bare = rewrite(head, tmp_path / "bare.gguf", drop=["tokenizer.ggml.mask_token_id"])
    outside = rewrite(head, tmp_path / "outside.gguf", put={"tokenizer.ggml.mask_token_id": (U32, 4096)})
    other = rewrite(head, tmp_path / "other.gguf", put={"dflash.hyper_connection.count": (U32, 4)})
    for target, path, why in (
        (DRAFT, head, "whose hidden states have 320 numbers, and those of .* have 192"),
        (TARGET, far, "needs the input of layer 4, but .* has the layers 0 to 3"),
        (TARGET, alone, "is no DFlash head that llama.cpp can run"),
        (TARGET, bare, "is no DFlash head that llama.cpp can run"),
        (TARGET, other, "is a DSpark head of DeepSeek V4, which duo does not support yet"),
        (tiny_gemma3(DRAFT, tmp_path / "gemma3.gguf", 64), head, "is a gemma3 model, and llama.cpp does not give"),
    ):
        with pytest.raises(DuoError, match=why):
            Duo(target, path, n_ctx=256)
        assert main(["check", str(target), str(path), "--json"]) == 1
        out = capsys.readouterr().out
        assert not out or re.search(why, json.loads(out)["why_not"])
    with pytest.raises(DuoError, match="masks tokens with token 4096, which is outside its vocabulary"):
        Duo(TARGET, outside, n_ctx=256)
    with pytest.raises(DuoError, match="is a draft head"):
        Duo(head, n_ctx=256)
    with pytest.raises(DuoError, match=r"is no DFlash head \(--spec-type draft-dflash\)"):
        Duo(TARGET, DRAFT, n_ctx=256, spec_type="draft-dflash")
    with pytest.raises(DuoError, match=r"is no EAGLE-3 head \(--spec-type draft-eagle3\)"):
        Duo(TARGET, head, n_ctx=256, spec_type="draft-eagle3")
    with pytest.raises(DuoError, match="needs its target in the same process"):
        Duo(TARGET, None, n_ctx=256, spec_type="draft-dflash", draft_host="127.0.0.1:1")
    assert main(["draft-host", "-md", str(head), "--listen", "127.0.0.1:0"]) == 1
    assert "use a draft model for a target elsewhere" in capsys.readouterr().err


def test_check_says_what_a_head_reads(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = check_pair(TARGET, head, devices(), n_ctx=2048)
    assert found.draft.n_ctx == 2048
    assert found.draft.need.total_cache == 2816 * 2 * 5 * 64 * 2 * 2  # cells, layers, heads, width, K and V, F16
    assert main(["check", str(TARGET), str(head)]) == 0
    said = capsys.readouterr().out
    assert "a DFlash head: it reads layers 1, 2, 3 of width 320; proposes 2048 tokens in blocks of 8" in said
    assert "the draft fits the target" in said
    assert main(["-m", str(TARGET), "-md", str(head), "-c", "256", "-n", "4", "-p", "Once"]) == 0
    assert "+ draft dflash.gguf" in capsys.readouterr().err
