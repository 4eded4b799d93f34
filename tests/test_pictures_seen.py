"""The words of a text show that the picture is seen: a trained pair says what is drawn, and the demo pair reads a shape
as the word that it stands for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HELD
from drawn_scenes import ASKED as QUESTION
from drawn_scenes import DRAFT, PROJECTOR, TARGET, Scene, fresh
from drawn_shapes import SHAPES, learned_projector, picture
from sizes import size
from waits import in_threads

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

ASKED: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
CAPTION: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "cache_prompt": False}
N_SCENES = size(6, 12)
PAIR: dict[str, Any] = {"n_ctx": 1024, "n_ctx_draft": 1024, "n_threads": 1, "n_threads_draft": 1, **EXACT}


def shown(scenes: list[tuple[Scene, bytes]]) -> list[str]:
    return [s.caption for s, _ in scenes]


def test_drawn_scenes_are_described() -> None:
    """Pictures that no training has seen. The draft does not see, and guesses what follows from the words."""
    scenes = [fresh(seed) for seed in range(N_SCENES)]
    assert len({*shown(scenes)}) == N_SCENES
    with SwitchedDuo(TARGET, DRAFT, mmproj=PROJECTOR, **PAIR, **HELD) as d:
        for mode in ("plain", "sync", "async"):
            found = [d.generate(QUESTION, images=[file], mode=mode, **CAPTION) for _, file in scenes]
            assert [r.text for r in found] == shown(scenes), mode
            if mode == "sync":
                n_right = sum(r.timings["draft_n_accepted"] for r in found)
                assert n_right > 0.6 * sum(len(r.tokens) for r in found)


def test_four_scenes_are_described_at_once() -> None:
    scenes = [fresh(100 + seed) for seed in range(8)]
    with SwitchedDuo(TARGET, DRAFT, mmproj=PROJECTOR, n_parallel=4, **PAIR, **HELD) as d:
        for mode in ("plain", "sync", "async"):
            asked = [partial(d.generate, QUESTION, images=[file], mode=mode, **CAPTION) for _, file in scenes]
            assert [r.text for r in in_threads(*asked)] == shown(scenes), mode


@pytest.mark.daily
@pytest.mark.slow
def test_a_shape_is_read_as_its_word(tmp_path: Path) -> None:
    target, draft = demo_pair()
    with Duo(target, vocab_only=True) as vocabulary:
        file = learned_projector(tmp_path / "shapes.gguf", vocabulary)
    with Duo(target, draft, mmproj=str(file), n_ctx=512, n_ctx_draft=512, n_threads=1, **EXACT) as d:
        texts = set()
        for word in SHAPES:
            wanted = d.generate(f"Then they saw the{word}, and the", **ASKED).text
            texts.add(wanted)
            for seed in range(3):
                for mode in ("plain", "sync", "async"):
                    images = [picture(word, seed)]
                    found = d.generate("Then they saw the<__media__>, and the", mode=mode, images=images, **ASKED)
                    assert found.text == wanted, (word, seed, mode)
        assert len(texts) > len(SHAPES) / 2  # the word matters
