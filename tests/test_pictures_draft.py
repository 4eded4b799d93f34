"""A draft that sees reads the pictures with a projector of its own. Whatever it guesses, the text is the target's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HELD
from drawn_scenes import ASKED, PROJECTOR, TARGET, fresh
from hearing_models import hearing_projector, wav
from other_vocabularies import shuffled
from sizes import mostly_daily
from tiny_models import tiny
from vision_models import mrope_model, png, projector
from waits import in_threads

from duo import Duo, DuoError
from duo.generation.result import Result
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models import pairs
from duo.models.demo import demo_pair
from duo.models.header import read_header

PROMPT = "Once upon a time <__media__> there was a dog who saw <__media__> and said"
SHOWN = [png(seed=1), png(90, 30, seed=2)]
FRESH: dict[str, Any] = {"max_tokens": 16, "ignore_eos": True, "cache_prompt": False}
PAIR: dict[str, Any] = {"n_ctx": 1024, "n_ctx_draft": 1024, "n_threads": 1, "n_threads_draft": 1, **EXACT}
SAMPLINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.8, "seed": 7})
WAYS = [dict(mode=mode, n_draft=4, **s) for mode in ("sync", "async") for s in SAMPLINGS]


def share(found: list[Result]) -> float:
    """Of guesses that were right."""
    assert not any(r.warning for r in found)
    return sum(r.timings["draft_n_accepted"] for r in found) / sum(r.timings["draft_n"] for r in found)


def eyes(folder: Path, kind: str, model: Path, seed: int = 0) -> Path:
    return projector(folder / f"{kind}-{Path(model).stem}.gguf", kind, read_header(model).n_embd, seed=seed)


def test_a_draft_that_sees_knows_what_is_drawn() -> None:
    """The target drafts for itself. Its projector is all that a guess of the words can come from."""
    scenes = [fresh(seed) for seed in range(4)]
    shares = {}
    for sees in (True, False):
        more = {"mmproj_draft": PROJECTOR} if sees else {}
        with SwitchedDuo(TARGET, TARGET, mmproj=PROJECTOR, **PAIR, **HELD, **more) as d:
            for mode in ("sync", "async"):
                asked: dict[str, Any] = {"mode": mode, "temperature": 0, "max_tokens": 60, "n_draft": 4}
                found = [d.generate(ASKED, images=[file], **asked) for _, file in scenes]
                assert [r.text for r in found] == [s.caption for s, _ in scenes]
                shares[sees, mode] = share(found)
    assert shares[True, "sync"] == 1.0 and shares[True, "async"] > 0.8
    assert shares[False, "sync"] < 0.8


# Other tests have more and fewer rows.
OTHER_EYES = mostly_daily(["more rows", "fewer rows", "mrope", "mrope-target"], ("mrope",))


@pytest.fixture(scope="module", params=OTHER_EYES)
def other_eyes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    """The draft has other rows and positions of a picture than the target."""
    folder = tmp_path_factory.mktemp("eyes")
    target, draft = demo_pair()
    kinds = {"more rows": ("gemma3", "internvl"), "fewer rows": ("internvl", "gemma3")}
    of_target, of_draft = kinds.get(request.param, ("mlp", "qwen2vl_merger"))
    if request.param == "mrope":
        draft = mrope_model(folder / "draft.gguf")
    elif request.param == "mrope-target":
        target, of_target, of_draft = mrope_model(folder / "target.gguf"), of_draft, of_target
    files = {"mmproj": eyes(folder, of_target, target), "mmproj_draft": eyes(folder, of_draft, draft)}
    with SwitchedDuo(target, draft, n_parallel=4, **files, **PAIR, **HELD) as d:
        yield d


def test_texts_are_plains(other_eyes: Duo) -> None:
    d = other_eyes
    for way in WAYS:
        plain = d.generate(PROMPT, images=SHOWN, **{**FRESH, **way, "mode": "plain"})
        found = d.generate(PROMPT, images=SHOWN, **FRESH, **way)
        assert found.tokens == plain.tokens and not found.warning and found.timings["draft_n"] > 0


def test_texts_at_once_are_plains(other_eyes: Duo) -> None:
    """Some of them without pictures."""
    asked = [(PROMPT, {"images": [png(seed=i), png(seed=20 + i)]}) for i in range(4)]
    asked += [("Once upon a time", {}), ("The old king", {})]
    wanted = [other_eyes.generate(p, mode="plain", temperature=0, **FRESH, **x).tokens for p, x in asked]
    for mode in ("sync", "async"):
        found = in_threads(*(partial(other_eyes.generate, p, mode=mode, temperature=0, **FRESH, **x) for p, x in asked))
        assert [r.tokens for r in found] == wanted and not any(r.warning for r in found)


def test_caches_know_the_drafts_pictures(other_eyes: Duo) -> None:
    """Beginnings that are read once, texts that go on, and saved ones."""
    d = other_eyes
    o: dict[str, Any] = {"max_tokens": 16, "temperature": 0, "ignore_eos": True, "mode": "sync", "n_draft": 4}
    plain = {**o, "mode": "plain", "cache_prompt": False}
    first = d.generate(PROMPT, images=SHOWN, **o)
    for images, words in (
        (SHOWN, PROMPT),
        ([SHOWN[0], png(seed=5)], PROMPT),
        ([png(seed=6), SHOWN[1]], PROMPT),
        (SHOWN, PROMPT + first.text + " And then"),
    ):
        found = d.generate(words, images=images, **o)
        assert found.tokens == d.generate(words, images=images, **plain).tokens and not found.warning
    state = d.save_state()
    d.generate("Something else", **o)
    d.load_state(state)
    again = d.generate(PROMPT, images=SHOWN, **o)
    assert again.tokens == first.tokens and again.timings["cache_n"] > 0 and not again.warning


def test_the_noise_is_the_targets_whatever_the_draft_reads(tmp_path: Path) -> None:
    """The target as its own draft, with a projector that makes other rows: where they do not matter, guesses of a text
    with a temperature are as good as greedy ones. With noise of another position they would be bad."""
    target = demo_pair()[0]
    words = "Once upon a time there was a little town by the sea."
    for kinds in (("gemma3", "internvl"), ("internvl", "gemma3")):
        files = dict(zip(("mmproj", "mmproj_draft"), (eyes(tmp_path, k, target) for k in kinds), strict=True))
        with SwitchedDuo(target, target, **files, **PAIR, **HELD) as d:
            for how in SAMPLINGS:
                found = d.generate(f"<__media__> {words * 4}", images=SHOWN[:1], mode="sync", n_draft=4, **FRESH, **how)
                assert share([found]) > 0.3  # 0.1 to 0.2 with noise of a neighbouring position


@pytest.mark.full
def test_a_recurrent_draft_sees(tmp_path: Path) -> None:
    """Qwen3.5's kind: a state, and positions of several parts. The target drafts for itself."""
    target = tiny("qwen35", demo_pair()[1], tmp_path / "qwen35.gguf")
    file = eyes(tmp_path, "qwen2vl_merger", target)
    texts = []
    with SwitchedDuo(target, target, mmproj=file, mmproj_draft=file, **{**PAIR, "strict": True}, **HELD) as d:
        for cached in (False, True):
            o: dict[str, Any] = {**FRESH, "temperature": 0, "images": SHOWN, "cache_prompt": cached}
            texts.append(d.generate(PROMPT, mode="sync", n_draft=4, **o))
            assert texts[-1].tokens == d.generate(PROMPT, mode="plain", **o).tokens
    assert share(texts) > 0.99  # it is the target, and sees the same


def test_what_cannot_see_is_said(tmp_path: Path) -> None:
    target, draft = demo_pair()
    of_target, of_draft = eyes(tmp_path, "mlp", target), eyes(tmp_path, "mlp", draft)
    other, head = pairs.paths("demo-eagle3")
    for models, options, why in (
        ((target, None), {"mmproj": of_target, "mmproj_draft": of_draft}, "--mmproj-draft is for a draft model"),
        ((target, draft), {"mmproj_draft": of_draft}, "give --mmproj as well"),
        ((target, draft), {"mmproj": of_target, "mmproj_draft": tmp_path / "no.gguf"}, r"\(--mmproj-draft\)"),
        ((target, draft), {"mmproj": of_target, "mmproj_draft": of_target}, "give --mmproj-draft another file"),
        ((other, head), {"mmproj": of_target, "mmproj_draft": of_target}, "draft head reads the target's states"),
    ):
        with pytest.raises(DuoError, match=why) as e:
            Duo(*models, n_ctx=256, n_threads=1, **options)
        assert "\n" not in str(e.value)


def test_a_draft_with_another_vocabulary_is_blind(tmp_path: Path) -> None:
    target, draft = demo_pair()
    foreign = shuffled(draft, tmp_path / "shuffled.gguf")
    of_target = eyes(tmp_path, "mlp", target)
    with pytest.raises(DuoError, match="another vocabulary"):
        Duo(target, foreign, mmproj=of_target, mmproj_draft=eyes(tmp_path, "mlp", foreign), n_ctx=256, n_threads=1)
    with SwitchedDuo(target, foreign, mmproj=of_target, **PAIR, **HELD) as d:
        o: dict[str, Any] = {"images": SHOWN, "temperature": 0, **FRESH}
        found = d.generate(PROMPT, mode="sync", **o)
        assert found.tokens == d.generate(PROMPT, mode="plain", **o).tokens
        assert found.timings["draft_n"] > 0 and not found.warning


def test_a_draft_that_is_deaf_reads_the_words(tmp_path: Path) -> None:
    target, draft = demo_pair()
    ears = hearing_projector(tmp_path / "ears.gguf", "ultravox", read_header(target).n_embd)
    with SwitchedDuo(target, draft, mmproj=ears, mmproj_draft=eyes(tmp_path, "mlp", draft), **PAIR, **HELD) as d:
        o: dict[str, Any] = {"images": [wav()], "temperature": 0, **FRESH}
        found = d.generate("Once <__media__> there was", mode="sync", **o)
        assert found.tokens == d.generate("Once <__media__> there was", mode="plain", **o).tokens
        assert found.timings["draft_n"] > 0 and not found.warning


def test_a_picture_that_the_draft_cannot_hold_costs_the_text_its_draft(tmp_path: Path) -> None:
    target, draft = demo_pair()
    files = {"mmproj": eyes(tmp_path, "gemma3", target), "mmproj_draft": eyes(tmp_path, "internvl", draft)}
    with SwitchedDuo(target, draft, **files, **{**PAIR, "n_ctx_draft": 32}, **HELD) as d:
        o: dict[str, Any] = {"images": SHOWN, "temperature": 0, **FRESH}
        found = d.generate(PROMPT, mode="sync", **o)
        assert found.tokens == d.generate(PROMPT, mode="plain", **o).tokens
        assert found.timings["draft_n"] == 0
