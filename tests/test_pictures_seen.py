"""The words of a text show that the picture is seen: a drawn shape is read as the word that it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT
from drawn_shapes import SHAPES, learned_projector, picture

from duo import Duo
from duo.models.demo import demo_pair

ASKED: dict[str, Any] = {"temperature": 0, "max_tokens": 8}


@pytest.mark.full
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
