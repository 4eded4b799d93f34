"""Texts with a model on a GPU, whole or in part."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT
from gpu_device import FLASH_ATTN, MODES, NAME, NAMES, PROMPTS, SHORT, needs_flash, needs_gpu, same_but_for_ties
from model_files import TYPES, random_model, run
from model_files import options as probe_options

from duo import Duo, _core
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models import pairs

TARGET, HEAD = pairs.paths("demo-eagle3")
pytestmark = needs_gpu

# Of the demo target's five layers, as -ngl counts them.
PLACEMENTS: dict[str, dict[str, Any]] = {
    "target on the CPU": {"n_gpu_layers": 0},
    "output matrix": {"n_gpu_layers": 1},
    "two layers": {"n_gpu_layers": 3},
    "by name": {"n_gpu_layers": 0, "override_tensor": rf"blk\.[23]\.ffn={NAME}"},
    "whole": {"n_gpu_layers": "all"},
    "auto": {"n_gpu_layers": "auto", "n_gpu_layers_draft": "auto"},
    "stock kernels": {"n_gpu_layers": 2, "cpu_kernels": "stock"},
    "cache of the CPU": {"n_gpu_layers": "all", "offload_kqv": False},
    "prompts of the CPU": {"n_gpu_layers": 2, "op_offload": False},
    "q8_0 keys": {"n_gpu_layers": "all", "type_k": "q8_0"},
    "wide cache": {"n_gpu_layers": "all", "type_k": "f32", "type_v": "f32"},
}


def test_there_is_a_device() -> None:
    assert NAMES, "these tests need a GPU; make test-vulkan runs them without one"


@pytest.fixture(scope="module", params=PLACEMENTS)
def placed(request: pytest.FixtureRequest) -> Iterator[Duo]:
    with SwitchedDuo(n_ctx=512, always=True, **{"n_gpu_layers_draft": "all"} | PLACEMENTS[request.param]) as d:
        yield d


def test_guesses_change_no_text(placed: Duo) -> None:
    for prompt in PROMPTS:
        plain = placed.generate(prompt, mode="plain", **SHORT)
        assert len(plain.tokens) == 16
        for mode in ("sync", "async"):
            r = placed.generate(prompt, mode=mode, **SHORT)
            assert same_but_for_ties(placed, prompt, r, plain), (prompt, mode, r.text, plain.text)


def test_most_guesses_are_right(placed: Duo) -> None:
    found = [placed.generate(p, mode="sync", n_draft=3, **SHORT | {"max_tokens": 24}).timings for p in PROMPTS]
    accepted = sum(t["draft_n_accepted"] for t in found)
    assert accepted > 0.2 * sum(t["draft_n"] for t in found)  # 0.4 to 0.6 on the CPU


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_target_on_the_cpu_keeps_every_bit(temperature: float) -> None:
    options: dict[str, Any] = {"max_tokens": 24, "temperature": temperature, "seed": 5}
    with SwitchedDuo(n_ctx=512, n_gpu_layers=0, n_gpu_layers_draft="all", always=True, **EXACT) as d:
        for prompt in PROMPTS:
            plain = d.generate(prompt, mode="plain", **options)
            assert all(d.generate(prompt, mode=m, **options).tokens == plain.tokens for m in ("sync", "async"))


def test_strict_texts_are_equal() -> None:
    with SwitchedDuo(n_ctx=512, n_gpu_layers="all", n_gpu_layers_draft="all", strict=True, always=True) as d:
        for prompt in PROMPTS[:2]:
            texts = [d.generate(prompt, mode=m, **SHORT).tokens for m in MODES]
            assert texts[1:] == texts[:1] * 2


def test_several_texts_at_once() -> None:
    with Duo(n_ctx=512, n_parallel=3, n_gpu_layers=0, n_gpu_layers_draft="all", **EXACT) as d:
        alone = [d.generate(p, mode="plain", **SHORT).tokens for p in PROMPTS]
        assert [r.tokens for r in d.generate_many(PROMPTS, **SHORT)] == alone
    with SwitchedDuo(n_ctx=512, n_parallel=3, n_gpu_layers="all", n_gpu_layers_draft="all", always=True) as d:
        plain = [d.generate(p, mode="plain", **SHORT) for p in PROMPTS]
        for prompt, got, want in zip(PROMPTS, d.generate_many(PROMPTS, **SHORT), plain, strict=True):
            assert same_but_for_ties(d, prompt, got, want)


def test_a_draft_head_on_the_device() -> None:
    with SwitchedDuo(TARGET, HEAD, n_ctx=512, n_gpu_layers=0, n_gpu_layers_draft="all", always=True, **EXACT) as d:
        plain = d.generate(PROMPTS[0], mode="plain", **SHORT)
        for mode in ("sync", "async"):
            assert d.generate(PROMPTS[0], mode=mode, **SHORT).tokens == plain.tokens
        found = [d.generate(p, mode="sync", n_draft=3, **SHORT | {"max_tokens": 24}).timings for p in PROMPTS]
        assert sum(t["draft_n_accepted"] for t in found) > 0.15 * sum(t["draft_n"] for t in found)


def test_the_head_and_its_target_on_the_device() -> None:
    where = {"n_gpu_layers": "all", "n_gpu_layers_draft": "all"}
    with SwitchedDuo(TARGET, HEAD, n_ctx=512, always=True, **where) as d:
        plain = d.generate(PROMPTS[0], mode="plain", **SHORT)
        for mode in ("sync", "async"):
            assert same_but_for_ties(d, PROMPTS[0], d.generate(PROMPTS[0], mode=mode, **SHORT), plain)


@needs_flash
@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_flash_attention_changes_no_text(flash_attn: str) -> None:
    with SwitchedDuo(n_ctx=512, n_gpu_layers="all", n_gpu_layers_draft="all", flash_attn=flash_attn, always=True) as d:
        plain = d.generate(PROMPTS[0], mode="plain", **SHORT)
        for mode in ("sync", "async"):
            assert same_but_for_ties(d, PROMPTS[0], d.generate(PROMPTS[0], mode=mode, **SHORT), plain)


@pytest.mark.parametrize("kind", ["q8_0", "q5_0", "q5_1", "q4_K", "q6_K", "f16"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_weights_on_both_sides_give_the_cpus_logits(kind: str, layers: int, tmp_path: Path) -> None:
    path = random_model(tmp_path / "m.gguf", "llama", kind)
    want = run(_core.Probe(probe_options(path)), 8, 1, 4)
    o = probe_options(path, TYPES)
    o.devices, o.n_gpu_layers, o.flash_attn = list(NAMES), layers, FLASH_ATTN
    got = run(_core.Probe(o), 8, 1, 4)
    # Both sides round the inputs of products to eight bits. With rows in another order nothing would be in common.
    assert np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)


def test_a_text_is_cancelled_in_mid_pass() -> None:
    with Duo(n_ctx=2048, n_gpu_layers="all", n_gpu_layers_draft="all") as d:
        for mode in MODES:
            text = d.stream("Once upon a time " * 100, mode=mode, max_tokens=1000, ignore_eos=True)
            found = [next(text) for _ in range(3)]
            other = threading.Thread(target=text.close)
            other.start()
            assert len(found + list(text)) < 1000
            other.join()
            assert len(d.generate(PROMPTS[0], mode=mode, **SHORT).tokens) == 16
