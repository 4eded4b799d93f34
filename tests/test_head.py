"""A draft head (EAGLE-3) beside its target: whatever it guesses, the text is the target's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT
from gguf_files import U32, rewrite, tiny_gemma3
from head_texts import DAILY, OFTEN, TEXTS, Written, check_same, guessing, least_drafted, ways, written
from prompts import PROMPTS
from sizes import mostly_proof_of_two

from duo import Duo, DuoError
from duo.cli.main import main
from duo.gguf_tools.random_head import RandomHeadShape, random_head, random_weights, write_head
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.placement.compatibility import check_pair
from duo.placement.devices import devices

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
WAYS = ways("draft-eagle3") | {"by its name": {"n_draft": 3, "spec_type": "draft-eagle3"}}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heads") / "eagle3.gguf"
    random_head(TARGET, path, seed=1, shape=RandomHeadShape(n_draft_vocab=2048))
    return path


@pytest.fixture(scope="module")
def pair(head: Path) -> Iterator[Duo]:
    with guessing(head) as d:
        yield d


@pytest.fixture(scope="module")
def plain() -> Written:
    return written()


@pytest.mark.random
@pytest.mark.parametrize(
    ("way", "mode"), mostly_proof_of_two(WAYS, ["sync", "async"], [*OFTEN, ("by its name", "sync")], DAILY)
)
def test_the_text_is_plains(pair: Duo, plain: Written, way: str, mode: str) -> None:
    assert check_same(pair, plain, mode, **WAYS[way]) >= least_drafted(way, mode)


def test_a_text_that_goes_on_keeps_its_states(pair: Duo) -> None:
    """Each turn begins with the text so far. The head reads only what is new: steps over prompts are few."""
    with Duo(TARGET, n_ctx=512, **EXACT) as alone:
        ids = pair.tokenize(TEXTS[1])
        for turn in range(4):
            r = pair.generate(ids, max_tokens=20, temperature=0, mode="sync", n_draft=3)
            assert r.tokens == alone.generate(ids, max_tokens=20, temperature=0).tokens
            t = pair.timings
            # Each pass has its guesses, but for the last tokens of the text and the first one, without waiting.
            assert t["draft_n"] >= 3 * (t["target_passes_n"] - 4), turn
            ids = [*ids, *r.tokens, *pair.tokenize(" And then", add_bos=False)]


def test_several_texts_at_once(head: Path) -> None:
    options: dict[str, Any] = {"max_tokens": 24, "temperature": 0}
    with Duo(TARGET, n_ctx=1024, **EXACT) as alone:
        want = [alone.generate(p, **options).tokens for p in PROMPTS[:5]]
    with SwitchedDuo(TARGET, head, n_ctx=1024, n_parallel=4, always=True, **EXACT) as d:
        for mode in ("async", "sync"):
            found = d.generate_many(PROMPTS[:5], mode=mode, **options)
            assert [r.tokens for r in found] == want


@pytest.mark.daily
def test_a_head_may_use_its_targets_matrices(tmp_path: Path) -> None:
    for own_embedding, own_output in ((False, True), (True, False), (False, False)):
        shape = RandomHeadShape(n_embd=320, n_head=5, own_embedding=own_embedding, own_output=own_output)
        path = tmp_path / f"{own_embedding}{own_output}.gguf"
        random_head(TARGET, path, seed=1, shape=shape)
        for exact in (EXACT, {"cpu_kernels": "stock"}):
            with SwitchedDuo(TARGET, path, n_ctx=512, always=True, **exact) as d:
                r = d.generate(TEXTS[0], max_tokens=16, mode="sync", n_draft=3, temperature=0)
                assert d.timings["draft_n"] > 0
                assert not r.warning


def test_saved_states_go_on(pair: Duo) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "temperature": 0, "mode": "sync", "n_draft": 3}
    first = pair.generate(TEXTS[1], **options)
    state = pair.save_state()
    ids = [*pair.tokenize(TEXTS[1]), *first.tokens]
    want = pair.generate(ids, **options).tokens
    pair.generate(TEXTS[0], **options)
    pair.load_state(state)
    assert pair.generate(ids, **options).tokens == want


def test_heads_that_do_not_fit_are_refused(head: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = tmp_path / "far.gguf"
    random_head(TARGET, far, seed=1, shape=RandomHeadShape(layers=(1, 2, 4)))
    short = rewrite(head, tmp_path / "short.gguf", put={"eagle3.target_layers": (U32, [1, 2])})
    for target, path, why in (
        (DRAFT, head, "whose hidden states have 320 numbers, and those of .* have 192"),
        (TARGET, far, "needs the input of layer 4, but .* has the layers 0 to 3"),
        (TARGET, short, "is no EAGLE-3 head that llama.cpp can run"),
        (tiny_gemma3(DRAFT, tmp_path / "gemma3.gguf", 64), head, "is a gemma3 model, and llama.cpp does not give"),
    ):
        with pytest.raises(DuoError, match=why):
            Duo(target, path, n_ctx=256)
        assert main(["check", str(target), str(path), "--json"]) == 1
        out = capsys.readouterr().out
        assert path == short or re.search(why, json.loads(out)["why_not"])
    assert check_pair(TARGET, head, devices(), n_ctx=2048).draft.n_ctx == 2048
    assert main(["check", str(TARGET), str(head)]) == 0
    said = capsys.readouterr().out
    assert "layers 1, 2, 3 of width 320; proposes 2048 tokens" in said
    assert "the draft fits the target" in said
    with pytest.raises(DuoError, match="is a draft head"):
        Duo(head, n_ctx=256)
    assert main(["draft-host", "-md", str(head), "--listen", "127.0.0.1:0"]) == 1
    assert "use a draft model for a target elsewhere" in capsys.readouterr().err


def test_heads_that_would_end_the_process_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """libllama asserts what it takes for granted of a head."""
    shape = RandomHeadShape(n_embd=320, n_head=5, n_draft_vocab=512)
    good = random_weights(TARGET, shape, seed=1)
    far, negative = good["d2t"].copy(), good["d2t"].copy()
    far[3], negative[3] = 10**6, -5
    faults: dict[str, tuple[dict[str, Any], str]] = {
        "far": ({"d2t": far}, "proposes token 1000000"),
        "negative": ({"d2t": negative}, "proposes token -5"),
        "narrow": ({"d2t": good["d2t"].astype(np.int32)}, "as i32, and llama.cpp needs a row of i64"),
        "short": ({"token_embd.weight": good["token_embd.weight"][:1000]}, "fewer rows than its vocabulary has tokens"),
        "values": ({"blk.0.attn_v.weight": good["blk.0.attn_v.weight"][:160]}, "keys and values of different lengths"),
        "whole": ({}, ""),
    }
    paths = {name: tmp_path / f"{name}.gguf" for name in faults}
    for name, (put, _) in faults.items():
        write_head(TARGET, paths[name], shape, good | put)
    borrowing = {n: x for n, x in good.items() if n != "output.weight"}
    write_head(TARGET, tmp_path / "borrowing.gguf", shape, borrowing)
    wrong = [(paths[name], why) for name, (_, why) in faults.items() if why and name != "values"]
    wrong += [
        (rewrite(paths["values"], tmp_path / "v.gguf", put={"eagle3.attention.value_length": (U32, 32)}),
         faults["values"][1]),
        (tmp_path / "borrowing.gguf", "and has no output matrix for them"),
        *((rewrite(paths["whole"], tmp_path / f"turns-{n}.gguf", put={"eagle3.rope.dimension_count": (U32, n)}),
           f"turns {n} numbers of each key") for n in (0, 7, 4096)),
    ]  # fmt: skip
    for path, why in wrong:
        with pytest.raises(DuoError, match=why):
            Duo(TARGET, path, n_ctx=256)
        assert main(["check", str(TARGET), str(path), "--json"]) == 1
        assert why in json.loads(capsys.readouterr().out)["why_not"]
    with Duo(TARGET, paths["whole"], n_ctx=256):
        pass


def test_check_refuses_a_head_as_target(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(head), str(TARGET), "--json"]) == 1
    assert "is a draft head, which writes nothing alone" in json.loads(capsys.readouterr().out)["why_not"]
