"""Scales of LoRA adapters that change between texts: each text is that of a target loaded with its scales."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sizes import mostly_daily

from duo import BadValueError, Duo
from duo.models.demo import demo_pair

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from server_stand_ins import lora_for

TARGET, DRAFT = demo_pair()
PROMPT = "Once upon a time there was a little girl called Lily, who lived in a house near the sea. One day"
SCALES = (0.0, 0.5, 1.0, -2.0)
# Adapters are computed by stock kernels, whose sums depend on the width of a pass unless it is strict.
OPTIONS: dict[str, Any] = {"n_ctx": 1024, "cpu_kernels": "stock", "strict": True}
TEXT: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lora_for(TARGET, tmp_path_factory.mktemp("lora") / "a.gguf"))


@pytest.fixture(scope="module")
def expected(adapter: str) -> dict[float, str]:
    """The text of a target that was loaded with the scale, alone."""
    found = {}
    for scale in SCALES:
        with Duo(TARGET, lora_scaled={adapter: scale}, **OPTIONS) as d:
            found[scale] = d.generate(PROMPT, **TEXT).text
    assert len(set(found.values())) == len(SCALES)
    with Duo(TARGET, **OPTIONS) as d:
        assert d.generate(PROMPT, **TEXT).text == found[0.0]
    return found


@pytest.fixture(scope="module")
def pair(adapter: str) -> Iterator[Duo]:
    with Duo(TARGET, DRAFT, lora=adapter, n_parallel=4, cache_ram=64, **OPTIONS) as d:
        yield d


@pytest.mark.parametrize("mode", mostly_daily(["plain", "sync", "async"], ["async"]))
def test_each_text_has_its_scale(pair: Duo, expected: dict[float, str], mode: Any) -> None:
    for scale in (*SCALES, *reversed(SCALES)):
        r = pair.generate(PROMPT, mode=mode, lora_scales=[scale], **TEXT)
        assert r.text == expected[scale], scale
    assert pair.generate(PROMPT, mode=mode, **TEXT).text == expected[1.0]  # as it was loaded


def test_texts_at_once(pair: Duo, expected: dict[float, str]) -> None:
    def text(x: tuple[Any, float]) -> str:
        return pair.generate(PROMPT, mode=x[0], lora_scales=[x[1]], cache_prompt=False, **TEXT).text

    asked = [(mode, scale) for mode in ("plain", "async") for scale in SCALES]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(text, asked)) == [expected[scale] for _, scale in asked]


def test_what_the_cache_holds_is_of_one_scale(adapter: str, expected: dict[float, str]) -> None:
    with Duo(TARGET, lora=adapter, cache_ram=64, **OPTIONS) as d:
        n = len(d.tokenize(PROMPT))
        for scale, n_cached in ((0.5, 0), (0.5, n - 1), (1.0, 0), (0.5, n - 1 if n > 64 else 0)):
            r = d.generate(PROMPT, lora_scales=[scale], **TEXT)
            assert (r.text, r.timings["cache_n"]) == (expected[scale], n_cached)
        long = PROMPT * 4
        first, n = d.generate(long, lora_scales=[0.5], **TEXT).text, len(d.tokenize(long))
        other = d.generate(long, lora_scales=[-2.0], **TEXT)
        assert other.timings["cache_n"] == 0 and other.text != first
        again = d.generate(long, lora_scales=[0.5], **TEXT)  # back from RAM
        assert again.timings["cache_ram_n"] >= n - 1 and again.text == first


def test_the_scales_of_all_texts(adapter: str, expected: dict[float, str]) -> None:
    with Duo(TARGET, DRAFT, lora_scaled={adapter: 0.5}, lora_init_without_apply=True, **OPTIONS) as d:
        assert d.lora_scales == [0.0] and d.generate(PROMPT, **TEXT).text == expected[0.0]
        d.lora_scales = [0.5]
        assert d.lora_scales == [0.5] and d.generate(PROMPT, **TEXT).text == expected[0.5]
        assert d.generate(PROMPT, lora_scales=[1], **TEXT).text == expected[1.0]
        for bad in ([], [1.0, 2.0], [float("nan")]):
            with pytest.raises(BadValueError, match="scale"):
                d.lora_scales = bad
        assert d.lora_scales == [0.5]
        for wrong in ([], ["x"], 3, [float("inf")]):
            with pytest.raises(BadValueError, match=r"lora_scales.*a number for each LoRA adapter"):
                d.generate(PROMPT, lora_scales=wrong, **TEXT)  # type: ignore[arg-type]
        with pytest.raises(BadValueError, match="2 scales of LoRA adapters were given, and 1 adapters are loaded"):
            d.generate(PROMPT, lora_scales=[1.0, 2.0], **TEXT)


def test_a_saved_state_knows_its_scale(adapter: str, expected: dict[float, str]) -> None:
    with Duo(TARGET, DRAFT, lora=adapter, **OPTIONS) as d:
        n = len(d.tokenize(PROMPT))
        d.generate(PROMPT, lora_scales=[0.5], **TEXT)
        state = pickle.loads(pickle.dumps(d.save_state()))
        assert state.target.head.lora_scales == (0.5,)
    with Duo(TARGET, DRAFT, lora_scaled={adapter: 0.25}, **OPTIONS) as d:  # the same adapter
        for scale, n_cached in ((1.0, 0), (0.5, n - 1)):
            d.load_state(state)
            r = d.generate(PROMPT, lora_scales=[scale], **TEXT)
            assert (r.text, r.timings["cache_n"]) == (expected[scale], n_cached)


def test_a_prompt_cache_is_of_one_scale(adapter: str, expected: dict[float, str], tmp_path: Path) -> None:
    asked: dict[str, Any] = {"prompt_cache": str(tmp_path / "p.cache"), **TEXT}
    said = []
    for scale in (0.5, 1.0, 1.0):
        with Duo(TARGET, lora=adapter, **OPTIONS) as d, d.stream(PROMPT, lora_scales=[scale], **asked) as s:
            assert "".join(chunk.text for chunk in s) == expected[scale]
            assert s.result is not None and (s.result.timings["cache_n"] > 0) == (len(said) == 2)
            said.append(
                [next(w for w in ("written", "other LoRA scales", "read") if w in note) for note in s.cache_notes]
            )
    assert said == [["written"], ["other LoRA scales", "written"], ["read"]]
