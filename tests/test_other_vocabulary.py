"""A draft with another vocabulary than its target's: its guesses are translated, and the text is the target's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HELD
from gguf_files import STR, rewrite, tokens_of
from other_vocabularies import shuffled, thinned
from sizes import mostly_daily, size

from duo import Duo, DuoError, _core
from duo.generation.errand import finish
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.placement.compatibility import check_pair
from duo.placement.devices import Device

TARGET, DRAFT = demo_pair()
CPU = Device("CPU", "", "cpu", 10**9, 10**9)
PROMPTS = ["Once upon a time there was a little tin soldier", 'The king said: "Ünïcödé, 今日は!"', "<|end|> x"]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": size(36, 300), "ignore_eos": True}
SEEDED: dict[str, Any] = {**GREEDY, "temperature": 0.8, "seed": 3}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo draft with its tokens under other ids."""
    return shuffled(DRAFT, tmp_path_factory.mktemp("other") / "shuffled.gguf")


@pytest.fixture(scope="module")
def fewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thinned(DRAFT, tmp_path_factory.mktemp("fewer") / "thinned.gguf", 0.3)


def test_the_same_model_with_other_ids_guesses_the_same(other: Path) -> None:
    """Target and draft share the noise of each token, whatever the ids are in the draft, so the same guesses are right
    (unless a wait for the draft ran out)."""
    texts, shares = [], []
    for draft in (DRAFT, other):
        n_drafted = n_accepted = 0
        with SwitchedDuo(TARGET, draft, n_ctx=512, always=True, **EXACT) as d:
            assert d.engine.shared_vocabulary == (None if draft == DRAFT else 1.0)  # all texts; the ids differ
            for prompt in PROMPTS:
                for sampling in (GREEDY, SEEDED, SEEDED | {"repeat_penalty": 1.2, "top_k": 5}):
                    r = d.generate(prompt, **sampling, mode="sync", n_draft=4)
                    assert r.warning == ""
                    texts.append(r.tokens)
                    n_drafted += r.timings["draft_n"]
                    n_accepted += r.timings["draft_n_accepted"]
        shares.append(n_accepted / n_drafted)
    assert texts[: len(texts) // 2] == texts[len(texts) // 2 :]
    assert shares[0] == pytest.approx(shares[1], rel=0.1)


@pytest.mark.random
@pytest.mark.parametrize("sampling", mostly_daily([GREEDY, SEEDED, SEEDED | {"accept": "typical"}], [SEEDED]))
def test_no_mode_changes_the_text(fewer: Path, sampling: dict[str, Any]) -> None:
    with SwitchedDuo(TARGET, fewer, n_ctx=512, **HELD, **EXACT) as d:
        assert 0.5 < d.engine.shared_vocabulary <= 1.0
        for prompt in PROMPTS:
            want = d.generate(prompt, **sampling, mode="plain")
            for mode, more in (("sync", {}), ("async", {}), ("sync", {"draft_tree": "dynamic", "n_draft": 8})):
                got = d.generate(prompt, **sampling, mode=mode, **more)
                assert got.warning == ""
                assert got.tokens == want.tokens or sampling.get("accept"), mode
                assert got.timings["draft_n"] > 0
        got = d.generate(PROMPTS[0], **sampling, mode="sync", n_draft=2)
        assert got.timings["draft_acceptance"] > 0.1


def test_a_smaller_vocabulary_of_the_target(fewer: Path, tmp_path: Path) -> None:
    """The other way round: a token of the draft is several of the target's."""
    target = thinned(TARGET, tmp_path / "target.gguf", 0.3, seed=2)
    with SwitchedDuo(target, DRAFT, n_ctx=512, always=True, **EXACT) as d:
        want = d.generate(PROMPTS[0], mode="plain", **GREEDY)
        got = d.generate(PROMPTS[0], mode="sync", **GREEDY)
        assert got.tokens == want.tokens and got.timings["draft_n_accepted"] > 0


@pytest.mark.daily
def test_texts_at_once_and_a_shift(fewer: Path) -> None:
    o = SEEDED | {"context_shift": True, "max_tokens": size(150, 200)}
    with SwitchedDuo(TARGET, fewer, n_ctx=128, n_parallel=3, always=True, **EXACT) as d:
        alone = [d.generate(p, mode="plain", **o).tokens for p in PROMPTS]
        streams = [d.stream(p, mode="async", **o) for p in PROMPTS]
        for s in streams:
            for _ in s:
                pass
        assert [(s.result.tokens, s.result.warning) for s in streams] == [(t, "") for t in alone]


def test_a_grammar_is_one_of_the_targets_tokens(other: Path) -> None:
    o = SEEDED | {"grammar": 'root ::= ("yes" | "no") (" " ("yes" | "no"))*', "max_tokens": 30, "ignore_eos": False}
    with SwitchedDuo(TARGET, other, n_ctx=256, always=True, **EXACT) as d:
        want = d.generate("Answer: ", mode="plain", **o)
        got = d.generate("Answer: ", mode="sync", **o)
    assert got.tokens == want.tokens and got.timings["draft_n_accepted"] > 5


def test_an_end_can_be_guessed(other: Path) -> None:
    """The ends of both vocabularies mean the same."""
    o: dict[str, Any] = {"temperature": 0, "max_tokens": 100, "mode": "sync", "n_draft": 4}
    with SwitchedDuo(TARGET, other, n_ctx=512, always=True, **EXACT) as d:
        ends = {"logit_bias": {d.token_eos(): 8.0}}
        want = d.generate(PROMPTS[0], **o | ends | {"mode": "plain"})
        r = d.generate(PROMPTS[0], **o | ends)
    assert want.finish_reason == "stop" and r.tokens == want.tokens
    # A draft that did not know the target's end would not be given this bias, and guess other tokens.
    assert r.timings["draft_n_accepted"] > 0


def test_a_saved_state_brings_the_draft_back(fewer: Path, tmp_path: Path) -> None:
    o = GREEDY | {"mode": "sync", "prompt_cache": tmp_path / "cache", "max_tokens": 30}
    texts = []
    for _ in range(2):
        with SwitchedDuo(TARGET, fewer, n_ctx=512, always=True, **EXACT) as d:
            texts.append(d.generate(PROMPTS[0], **o))
    assert texts[0].tokens == texts[1].tokens and texts[1].timings["cache_n"] > 5
    assert texts[0].warning == texts[1].warning == ""
    assert min(r.timings["draft_n_accepted"] for r in texts) > 5
    with SwitchedDuo(TARGET, DRAFT, n_ctx=512, always=True, **EXACT) as d:  # a draft with the target's own vocabulary
        assert d.generate(PROMPTS[0], **o).tokens == texts[0].tokens


def test_a_text_past_the_drafts_context_is_saved_without_its_end(fewer: Path) -> None:
    room: dict[str, Any] = {"n_ctx": 256, "n_ctx_draft": 256, "always": True, **EXACT}
    o = GREEDY | {"mode": "sync", "max_tokens": 200}
    with SwitchedDuo(TARGET, fewer, **room) as d:
        text = d.generate(PROMPTS[0], **o)
        state = d.save_state()
    assert state.draft is not None
    with SwitchedDuo(TARGET, fewer, **room) as d:
        d.load_state(state)
        look = finish(d.session, _core.Errand("look"))
        n = len(look.draft_tokens)
        assert 150 < n < len(look.target_tokens)  # some of its tokens are several of the draft's
        assert look.draft_tokens == look.target_tokens[:n] and look.draft_held[0] == n
        assert d.generate(PROMPTS[0], **o | {"max_tokens": 20}).tokens == text.tokens[:20]


def test_a_draft_that_needs_more_room_than_the_target_falls_silent(tmp_path: Path) -> None:
    letters = thinned(DRAFT, tmp_path / "letters.gguf", 0.98)
    o = GREEDY | {"max_tokens": 200, "mode": "sync", "n_draft": 2}
    with SwitchedDuo(TARGET, letters, n_ctx=256, always=True, **EXACT) as d:
        want = d.generate(PROMPTS[0], **o | {"mode": "plain"})
        got = d.generate(PROMPTS[0], **o)
        assert (got.tokens, got.warning) == (want.tokens, "")
        assert got.timings["draft_rounds"] < got.timings["target_passes_n"] - 20  # the last passes have no guess


def test_its_larger_context_is_planned_for(fewer: Path) -> None:
    """It may need more tokens for a text than its target."""
    c = check_pair(TARGET, fewer, [CPU], n_ctx=200)
    assert (c.target.n_ctx, c.draft.n_ctx) == (200, 300)
    with Duo(TARGET, fewer, n_ctx=200, **EXACT) as d:
        assert (d.engine.target.n_ctx, d.engine.draft.n_ctx) == (200, 300)  # type: ignore[union-attr]
    with Duo(TARGET, fewer, n_ctx=200, n_ctx_draft=200, **EXACT) as d:
        assert d.engine.draft.n_ctx == 200  # type: ignore[union-attr]


def test_what_is_said_of_it(other: Path, fewer: Path, tmp_path: Path, run: Run) -> None:
    line = ("-p", "Once", "-n", "4", "--temp", "0")
    code, _, err = run("-m", str(TARGET), "-md", str(fewer), *line)
    said = r"with another vocabulary, which shares \d+% with the target's: guesses are translated"
    assert code == 0 and re.search(said, err)
    code, out, _ = run("check", str(TARGET), str(fewer))
    assert code == 0 and "the draft has another vocabulary, which shares" in out
    code, out, _ = run("check", str(TARGET), str(fewer), "--json")
    assert code == 0 and json.loads(out)["compatible"] and 0.5 < json.loads(out)["shared_vocabulary"] <= 1
    words = [w if i < 5 else f"@{i}@@" for i, w in enumerate(tokens_of(DRAFT))]
    strange = rewrite(DRAFT, tmp_path / "strange.gguf", put={"tokenizer.ggml.tokens": (STR, words)})
    why = "the draft does not fit the target: token 5 is '@5@@' in the draft"
    assert why in check_pair(TARGET, strange, [CPU]).why_not
    with pytest.raises(DuoError, match=re.escape(why)):
        Duo(TARGET, strange, n_ctx=64)
