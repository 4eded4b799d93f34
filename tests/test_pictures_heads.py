"""Pictures beside draft heads, which read the target's states: texts equal plain's, and guesses are as good as without
pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HELD
from dflash_models import circling_target, copying_head
from gguf import dequantize
from gguf_files import Array, rewrite
from mtp_models import foreseeing
from vision_models import png, projector
from waits import in_threads

from duo import Duo
from duo.generation.result import Result
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models import pairs
from duo.models.demo import demo_pair
from duo.models.header import read_header

TARGET, DRAFT = demo_pair()
PROMPT = "Once upon a time <__media__> there was a dog who saw <__media__> and said"
LIMITS: dict[str, Any] = {"max_tokens": 16, "ignore_eos": True, "cache_prompt": False}
PAIR: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_threads_draft": 1, "strict": True}


def mtp(name: str, folder: Path) -> tuple[Path, Path | None]:
    """The layer is right if it is given the state before its token, and else wrong."""
    return foreseeing(name, DRAFT, folder / f"{name}.gguf"), None


def eagle3(folder: Path) -> tuple[Path, Path | None]:
    target, head = map(Path, pairs.paths("demo-eagle3"))
    return target, head


def dflash(folder: Path) -> tuple[Path, Path | None]:
    """The head copies tokens from a circle that the target goes round."""
    target = circling_target(TARGET, folder / "target.gguf")
    return target, copying_head(target, folder / "head.gguf")


def accepted(found: list[Result]) -> float:
    assert not any(r.warning for r in found)
    return sum(r.timings["draft_n_accepted"] for r in found) / sum(r.timings["draft_n"] for r in found)


@pytest.mark.parametrize(
    ("made", "kind", "least"),
    [
        pytest.param(partial(mtp, "hy_v3"), "internvl", 1.0, marks=pytest.mark.daily),
        pytest.param(partial(mtp, "qwen35"), "qwen2vl_merger", 1.0, marks=pytest.mark.full),  # a state; M-RoPE
        pytest.param(eagle3, "mlp", 0.1, marks=pytest.mark.daily),
        pytest.param(dflash, "gemma3", 0.1, marks=pytest.mark.daily),
    ],
    ids=["mtp", "mtp-mrope", "eagle3", "dflash"],
)
def test_texts_are_plains_beside_a_head(
    made: Callable[[Path], tuple[Path, Path | None]], kind: str, least: float, tmp_path: Path
) -> None:
    """least: share of right guesses where the two take turns, which is what the head gets without pictures. Ahead of
    the target, chance decides what is guessed of which state."""
    target, head = made(tmp_path)
    eyes = projector(tmp_path / "eyes.gguf", kind, read_header(target).n_embd)
    more = {} if head is not None else {"spec_type": "draft-mtp"}
    shown = [[png(seed=i), png(90, 30, seed=i + 9)] for i in range(4)]
    of_all: list[Result] = []
    for n in (1, 4):
        with SwitchedDuo(target, head, mmproj=eyes, n_parallel=n, **PAIR, **HELD, **more) as d:
            for how in ({"temperature": 0}, {"temperature": 0.8, "seed": 7}):
                said = partial(written, d, shown[:n], **how)
                plain = [r.tokens for r in said(mode="plain")]
                turns, ahead = said(mode="sync", n_draft=4), said(mode="async", n_draft=4)
                assert [r.tokens for r in turns] == [r.tokens for r in ahead] == plain
                assert accepted(turns) >= least
                of_all += ahead
    assert accepted(of_all) > 0


def test_a_head_guesses_as_well_behind_a_picture_as_behind_words(tmp_path: Path) -> None:
    """Each row of these pictures is the embedding of one word, so the target writes what it writes behind this word.
    The head has rows for words, and none for a picture."""
    target, head = pairs.paths("demo-eagle3")
    found = next(t for t in CheckedGgufReader(Path(target)).tensors if t.name == "token_embd.weight")
    embedding = dequantize(found.data, found.tensor_type)
    with Duo(target, vocab_only=True) as vocabulary:
        (word,) = vocabulary.tokenize(" ship", False)
        first, rest = vocabulary.tokenize("Once there was a"), vocabulary.tokenize(" on the sea, and the", False)

    def same(name: str, data: Array) -> Array:
        return np.zeros_like(data) if name == "mm.2.weight" else embedding[word] if name == "mm.2.bias" else data

    any_eyes = projector(tmp_path / "any.gguf", "mlp", embedding.shape[1])
    eyes = rewrite(any_eyes, tmp_path / "word.gguf", weights=same)
    o: dict[str, Any] = {**LIMITS, "temperature": 0, "max_tokens": 64, "mode": "sync", "n_draft": 4}
    with SwitchedDuo(target, head, mmproj=eyes, **PAIR, **HELD) as d:
        seen = d.generate("Once there was a<__media__> on the sea, and the", images=[png()], **o)
        n = seen.prompt_tokens - len(first) - len(rest)
        read = d.generate([*first, *[word] * n, *rest], **o)
    assert n == 16 and seen.tokens == read.tokens
    assert accepted([seen]) > 0.8 * accepted([read])


def written(d: Duo, shown: list[list[bytes]], **how: Any) -> list[Result]:
    """Texts about these pictures, all at once."""
    return in_threads(*(partial(d.generate, PROMPT, images=x, **LIMITS, **how) for x in shown))
