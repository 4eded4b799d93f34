"""MTP layers as a draft, of the target's own file or of another one: whatever they guess, the text is the target's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HELD
from gguf_files import STR, U32, Array, rewrite
from model_files import TOKENS, options
from mtp_models import follower, foreseeing, mtp_part, trunk_part
from sizes import LARGE, mostly_daily, mostly_proof, size
from tiny_models import MTP, MTP_TIED, tiny

from duo import Duo, DuoError, _core
from duo.cli.main import main
from duo.gguf_tools.random_head import RandomHeadShape, random_head
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
STRICT: dict[str, Any] = {"n_ctx": 256, "strict": True, "always": True}
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}]
LONG = "once upon a time there was a little town, once upon a time there was a"
TEXTS = [LONG, "Once upon a time", "The dog saw the cat"]
LIMITS: dict[str, Any] = {"max_tokens": 32, "ignore_eos": True}
# Each text and each way to sample; `make proof` has all pairs.
TEXT_SAMPLINGS = [(t, s) for i, t in enumerate(TEXTS) for j, s in enumerate(SAMPLINGS) if LARGE or i % 2 == j]
OWN: dict[str, Any] = {"spec_type": "draft-mtp"}


def written(d: Duo, **more: Any) -> list[tuple[int, ...]]:
    return [d.generate(t, **LIMITS, **s, **more).tokens for t, s in TEXT_SAMPLINGS]


class Model:
    """A target with an MTP layer, and its two parts."""

    def __init__(self, name: str, folder: Path, *, right: bool) -> None:
        make = foreseeing if right else tiny
        self.whole = make(name, DRAFT, folder / "whole.gguf", **({} if right else {"n_mtp": 1}))
        self.head = mtp_part(self.whole, folder / "mtp.gguf")
        self.trunk = trunk_part(self.whole, folder / "trunk.gguf")

    def ways(self) -> Iterator[tuple[Path, Path | None, dict[str, Any]]]:
        """Target, draft and options: own layers, and a file of their own."""
        yield self.whole, None, OWN
        yield self.trunk, self.head, {}


@pytest.fixture(scope="module")
def hy(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The layer is right."""
    return Model("hy_v3", tmp_path_factory.mktemp("hy"), right=True)


@pytest.mark.random
@pytest.mark.parametrize("name", mostly_proof(MTP + MTP_TIED, ("qwen35",), ("deepseek2", "hy_v3", "bailingmoe3")))
def test_random_layers_do_not_change_the_text(name: str, tmp_path: Path) -> None:
    m = Model(name, tmp_path, right=False)
    n_drafted = 0
    with SwitchedDuo(m.whole, **STRICT) as alone:
        plain = written(alone)
    for target, draft, more in m.ways():
        with SwitchedDuo(target, draft, **STRICT, **more) as d:
            for mode in ("plain", "sync", "async"):
                assert written(d, mode=mode, n_draft=4) == plain, mode
                n_drafted += d.timings.get("draft_n", 0)
    assert n_drafted > 40


@pytest.mark.random
@pytest.mark.parametrize("name", mostly_proof(MTP, ("qwen3next",), ("glm4moe", "mimo2")))
def test_right_layers_are_accepted(name: str, tmp_path: Path) -> None:
    m = Model(name, tmp_path, right=True)
    with SwitchedDuo(m.trunk, **STRICT) as alone:
        plain = written(alone)
    for target, draft, more in m.ways():
        with SwitchedDuo(target, draft, **STRICT | HELD, **more) as d:
            assert d.draft is not None
            assert d.draft.head == "mtp"
            for mode in ("sync", "async"):
                n_drafted = n_accepted = 0
                for (text, s), want in zip(TEXT_SAMPLINGS, plain, strict=True):
                    r = d.generate(text, mode=mode, n_draft=4, **LIMITS, **s)
                    assert (r.tokens, r.warning) == (want, "")
                    n_drafted += r.timings["draft_n"]
                    n_accepted += r.timings["draft_n_accepted"]
                assert n_accepted > (
                    size(50, 100) if mode == "sync" else size(20, 40)
                )  # ahead, about one for each pass
                assert (r.timings["passes_ahead_n"] > 0) == (mode == "async")
                # A token that the filters leave may be another one. In async, guesses from its own states are worse.
                assert n_accepted / n_drafted > (0.85 if mode == "sync" else 0.6)


def test_a_layer_is_right_with_the_state_before_its_token_only(hy: Model) -> None:
    """And then with its own: without this, a mistake by one position would only cost acceptance."""
    text = [400]
    after = follower(4096)
    while len(text) < 43:
        text.append(int(after[text[-1]]))
    of_target = options(hy.whole)
    of_target.mtp = True
    target = _core.Probe(of_target)
    target.decode(text[:40])
    states = target.features()
    assert states.shape == (40, 256)
    head = _core.Probe(options(hy.head), is_draft=True)

    def right(tokens: list[int], pos: int, given: Array) -> float:
        head.decode(tokens, pos, head.encode(given))
        return float(np.mean(head.logits().argmax(1) == after[tokens]))

    assert right(text[1:40], 1, states[:-1]) == 1.0
    assert right(text[1:40], 1, states[1:]) < 0.1
    assert right(text[2:40], 2, states[:-2]) < 0.1
    head.decode(text[1:40], 1, head.encode(states[:-1]))
    for i in range(40, 43):  # a chain on its own states
        given = head.states()[-1:]
        head.decode([text[i]], i, given)
        assert head.logits().argmax() == after[text[i]]


@pytest.mark.parametrize("name", mostly_daily(["hy_v3", "qwen35", "qwen3next"], ["hy_v3", "qwen35"]))
def test_states_belong_to_their_rows(name: str, tmp_path: Path) -> None:
    """Also where a pass is divided, because a recurrent model could not drop its row of company alone."""
    o = options(tiny(name, DRAFT, tmp_path / "m.gguf", n_mtp=1))
    o.mtp, o.strict, o.n_ubatch = True, True, 16
    rows = {}
    for widths in ((32,), (17, 15), (16, 16), (3, 5, 24)):
        p, pos, found = _core.Probe(o), 0, []
        for n in widths:
            p.decode(TOKENS[pos : pos + n], pos, only_last=True)
            found.append(p.features())
            pos += n
        rows[widths] = np.concatenate(found)
    want = rows.pop((32,))
    assert len(np.unique(want, axis=0)) == 32
    for widths, found in rows.items():
        assert np.allclose(found, want, atol=1e-3 * np.abs(want).max()), widths


def test_several_texts_at_once(hy: Model) -> None:
    prompts = [f"{t} {i}" for i in range(3) for t in TEXTS]
    with Duo(hy.whole, n_ctx=512, strict=True) as alone:
        want = [alone.generate(p, temperature=0, **LIMITS).tokens for p in prompts]
    for target, draft, more in hy.ways():
        with SwitchedDuo(target, draft, n_ctx=512, strict=True, n_parallel=4, **HELD, **more) as d:
            for mode in ("async", "sync"):
                n_accepted = 0
                for _ in range(10):  # on a busy machine guesses come late
                    found = d.generate_many(prompts, temperature=0, mode=mode, **LIMITS)
                    assert [r.tokens for r in found] == want
                    n_accepted += sum(r.timings["draft_n_accepted"] for r in found)
                    if n_accepted > 20:
                        break
                assert n_accepted > 20


@pytest.mark.parametrize("tree", ["dynamic", [[0], [1], [0, 0], [0, 1], [0, 0, 0]]])
def test_trees(hy: Model, tree: Any) -> None:
    with SwitchedDuo(hy.whole, **STRICT) as alone:
        want = written(alone)
    with SwitchedDuo(hy.whole, **STRICT, **OWN) as d:
        assert written(d, mode="async", draft_tree=tree, n_draft=6) == want
        assert written(d, mode="sync", draft_tree=tree, n_draft=6) == want
        assert d.timings["draft_n_accepted"] > 10


def test_saved_states_and_texts_that_go_on(hy: Model) -> None:
    with SwitchedDuo(hy.whole, **STRICT, **OWN) as d, SwitchedDuo(hy.trunk, **STRICT) as alone:
        ids = d.tokenize(LONG)
        for _ in range(3):
            ids = [*ids, *d.generate(ids, mode="sync", temperature=0, **LIMITS).tokens]
            state = d.save_state()
            assert d.timings["draft_acceptance"] > 0.9
        d.generate("Another text", temperature=0, **LIMITS)
        d.load_state(state)
        want = alone.generate(ids, temperature=0, **LIMITS).tokens
        assert d.generate(ids, temperature=0, **LIMITS).tokens == want


@pytest.mark.parametrize("name", mostly_daily(["qwen35", "qwen3next"], ["qwen35"]))
def test_a_recurrent_target_with_a_head_goes_on_from_its_state(name: str, tmp_path: Path) -> None:
    """Its last row is wanted again for the head, and there may be no way back to where it was."""
    target = tiny(name, DRAFT, tmp_path / "m.gguf", n_mtp=1)
    with (
        SwitchedDuo(target, **STRICT | {"n_ctx": 512}, **OWN) as d,
        SwitchedDuo(target, **STRICT | {"n_ctx": 512}) as alone,
    ):
        ids = d.tokenize(LONG)
        for turn in range(size(4, 6)):
            o: dict[str, Any] = {"temperature": 0, "max_tokens": 45 + turn, "ignore_eos": True}
            r = d.generate(ids, mode="sync", n_draft=3, **o)
            assert r.tokens == alone.generate(ids, **o).tokens
            assert r.timings["draft_n"] > 20
            assert turn == 0 or r.timings["cache_n"] > len(ids) - 20, turn
            ids = [*ids, *r.tokens]


@pytest.mark.parametrize("name", mostly_daily(["qwen35", "qwen3next"], ["qwen3next"]))
def test_a_recurrent_target_with_a_head_goes_back_to_the_same_state(name: str, tmp_path: Path) -> None:
    target = tiny(name, DRAFT, tmp_path / "m.gguf", n_mtp=1)
    with (
        SwitchedDuo(target, **STRICT | {"n_ctx": 512}, **OWN) as d,
        SwitchedDuo(target, **STRICT | {"n_ctx": 512}) as alone,
    ):
        history = d.tokenize(LONG)
        o: dict[str, Any] = {"temperature": 0, "max_tokens": 20, "ignore_eos": True, "prompt_mark": len(history)}
        for turn, end in enumerate((" The king said no.", " And then?", " But the old clock struck twelve times.")):
            ids = [*history, *d.tokenize(end, add_bos=False)]
            r, want = d.generate(ids, mode="sync", n_draft=3, **o), alone.generate(ids, **o)
            assert r.tokens == want.tokens
            assert r.timings["cache_n"] == want.timings["cache_n"] == (len(history) if turn else 0)


@pytest.mark.parametrize("name", mostly_daily(["qwen35", "qwen3next"], ["qwen3next"]))
def test_an_eagle3_head_of_a_recurrent_target(name: str, tmp_path: Path) -> None:
    target, head = tiny(name, DRAFT, tmp_path / "target.gguf"), tmp_path / "eagle3.gguf"
    random_head(target, head, seed=1, shape=RandomHeadShape(n_embd=64, n_ff=64, n_head=1, layers=(0, 1, 1)))
    with SwitchedDuo(target, **STRICT) as alone:
        want = written(alone)
    with SwitchedDuo(target, head, **STRICT) as d:
        assert written(d, mode="async", n_draft=3) == want
        assert written(d, mode="sync", n_draft=3) == want
        assert d.timings["draft_n"] > 10


def test_what_does_not_fit_is_said(hy: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tiny("qwen35", DRAFT, tmp_path / "qwen35.gguf")
    narrow = rewrite(hy.head, tmp_path / "narrow.gguf", put={"hy_v3.embedding_length": (U32, 128)})
    unknown = rewrite(hy.head, tmp_path / "unknown.gguf", put={"general.architecture": (STR, "llama")} | {
        f"llama.{k}": (U32, n) for k, n in (("block_count", 3), ("nextn_predict_layers", 1), ("embedding_length", 256),
                                            ("context_length", 256))})  # fmt: skip
    dflash = rewrite(TARGET, tmp_path / "dflash.gguf", put={"general.architecture": (STR, "dflash")} | {
        f"dflash.{k}": (U32, 256) for k in ("block_count", "embedding_length", "context_length")})  # fmt: skip
    head = tmp_path / "eagle3.gguf"
    random_head(TARGET, head, seed=1)
    for target, draft, more, why in (
        (other, hy.head, {}, "has the MTP layers of a hy_v3 model, and .* is a qwen35 model"),
        (hy.trunk, narrow, {}, "whose hidden states have 128 numbers, and those of .* have 256"),
        (TARGET, unknown, {}, r"has MTP layers of a kind \(llama\) that duo cannot run"),
        (TARGET, dflash, {}, "is no DFlash head that llama.cpp can run"),
        (hy.trunk, None, OWN, "has no MTP layers"),
        (TARGET, DRAFT, OWN, "has no MTP layers"),
        (TARGET, head, OWN, "has no MTP layers"),
        (TARGET, DRAFT, {"spec_type": "draft-eagle3"}, "is no EAGLE-3 head"),
        (hy.trunk, hy.head, {"spec_type": "draft-eagle3"}, "is no EAGLE-3 head"),
        (hy.head, None, {}, "has MTP layers only, which write nothing alone"),
        (hy.whole, None, {**OWN, "draft_host": "127.0.0.1:1"}, "needs its target in the same process"),
        (TARGET, head, {"spec_type": "draft-eagle3,draft-mtp"}, "only one kind of draft"),
    ):
        with pytest.raises(DuoError, match=why):
            Duo(target, draft, n_ctx=256, **more)
    with Duo(hy.whole, DRAFT, n_ctx=256) as d, pytest.raises(DuoError, match=r"is draft-mtp, but the draft .* a model"):
        d.generate("x", **OWN)
    assert main(["draft-host", "-md", str(hy.head), "--listen", "127.0.0.1:0"]) == 1
    assert "use a draft model for a target elsewhere" in capsys.readouterr().err


def test_check_says_what_can_be_used(hy: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(hy.whole)]) == 0
    said = capsys.readouterr().out
    assert "the draft is its own MTP layers: it reads the target's last state of width 256" in said
    assert main(["check", str(hy.trunk), str(hy.head), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["draft"]["head"]["kind"] == "mtp"
    assert (found["target"]["mtp_layers"], found["draft"]["mtp_layers"]) == (0, 1)
    assert main(["check", str(hy.whole), str(DRAFT)]) == 0
    assert "the target has 1 MTP layer, which can be its draft: --spec-type draft-mtp" in capsys.readouterr().out
    own = check_memory(hy.whole, capsys)
    assert own["draft"]["weights"] == 0
    assert 0 < own["draft"]["cache"] < own["target"]["cache"]


def check_memory(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, int]]:
    assert main(["check", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return {role: found[role]["memory"] for role in ("target", "draft")}


def test_the_first_line_says_so(hy: Model, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["-m", str(hy.whole), "-c", "256", "-n", "4", "-p", "Once"]
    assert main([*common, "-md", "none"]) == 0
    assert "no draft was given; use the target's MTP layers (--spec-type draft-mtp)" in capsys.readouterr().err
    assert main(common) == 0
    assert "+ its MTP layers (1 thread); async" in capsys.readouterr().err
    assert main([*common, "--spec-type", "draft-mtp"]) == 0
    assert "+ its MTP layers (1 thread); async" in capsys.readouterr().err
    assert main(["-m", str(hy.trunk), "-md", str(hy.head), "-c", "256", "-n", "4", "-p", "Once"]) == 0
    assert "+ draft mtp.gguf" in capsys.readouterr().err
