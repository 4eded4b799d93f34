"""The trained mixture of tests/data: real words, real routing, a draft and an MTP layer that are often right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT, needs_kernels
from model_files import options
from prompts import PROMPTS
from sizes import mostly_daily, size
from test_widen import assert_says_the_same
from trained_files import MIXTURE

from duo import Duo, _core
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.gguf_tools.whole_file import whole_file
from duo.gguf_tools.widen import widen
from duo.models.demo import demo_pair
from duo.models.header import read_header

pytestmark = pytest.mark.full

DRAFT = demo_pair()[1]
OWN: dict[str, Any] = {"spec_type": "draft-mtp"}
WAYS = {"the demo draft": (DRAFT, {}), "its MTP layer": (None, OWN)}
ENGINE: dict[str, Any] = {"n_ctx": 256, "always": True, **EXACT}
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}]
LIMITS: dict[str, Any] = {"max_tokens": 32, "ignore_eos": True, "n_draft": 4}
N_EXPERT, N_USED = 16, 4


def written(d: Duo, mode: str) -> list[tuple[int, ...]]:
    return [d.generate(p, mode=mode, **LIMITS, **s).tokens for p in PROMPTS[: size(2, 3)] for s in SAMPLINGS]


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    with SwitchedDuo(MIXTURE, **ENGINE) as alone:
        found = written(alone, "plain")
    assert len(set(found)) == len(found)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_every_mode_writes_the_same(way: str, plain: list[tuple[int, ...]]) -> None:
    draft, more = WAYS[way]
    with SwitchedDuo(MIXTURE, draft, **ENGINE, **more) as d:
        for mode in ("plain", "sync", "async"):
            assert written(d, mode) == plain, mode
        assert d.timings["draft_n"] > 0


@pytest.mark.parametrize(("way", "least"), [("the demo draft", 0.4), ("its MTP layer", 0.25)])
def test_many_guesses_are_right(way: str, least: float) -> None:
    draft, more = WAYS[way]
    n_first = n_right = 0
    with SwitchedDuo(MIXTURE, draft, **ENGINE, **more) as d:
        for prompt in PROMPTS[: size(6, 8)]:
            t = d.generate(prompt, mode="sync", draft_tree="chain", temperature=0, **LIMITS).timings
            n_first += t["draft_n_by_position"][0]
            n_right += t["draft_n_accepted_by_position"][0]
    assert n_first > 60
    assert least < n_right / n_first < 0.95


def experts(p: _core.Probe, tokens: list[int], pos: int) -> float:
    """Distinct ones of a layer in a pass."""
    p.decode(tokens, pos)
    n_products, n_distinct, _ = p.experts_read
    return n_distinct / n_products


def routers(path: Path) -> set[bytes]:
    return {t.data.tobytes() for t in whole_file(path).tensors if "ffn_gate_inp" in t.name}


@needs_kernels
def test_neighbouring_tokens_share_experts() -> None:
    with Duo(MIXTURE, n_ctx=256) as d:
        texts = [d.tokenize(prompt)[:24] for prompt in PROMPTS[:12]]
    texts = [ids for ids in texts if len(ids) == 24]
    p = _core.Probe(options(MIXTURE))
    by_width: dict[int, list[float]] = {1: [], 2: [], 8: []}
    for ids in texts:
        p.decode(ids[:16], 0)
        for width, found in by_width.items():
            found.append(experts(p, ids[16 : 16 + width], 16))
    one, two, eight = (float(np.mean(found)) for found in by_width.values())
    assert one == N_USED
    independent = N_EXPERT * (1 - (1 - N_USED / N_EXPERT) ** 8)
    assert N_USED < two < 2 * N_USED and two < eight < independent
    assert len({round(x, 3) for x in by_width[8]}) > 3  # it depends on the text


WIDER, DEEPER = {"n_embd": 1280, "n_ff": 64}, {"n_layer": 7, "n_ff": 96}


@pytest.mark.parametrize("wanted", mostly_daily([WIDER, DEEPER], [DEEPER]))  # test_widen has a wider one
def test_widened_it_says_the_same_and_chooses_experts_as_before(wanted: dict[str, int], tmp_path: Path) -> None:
    big = tmp_path / "big.gguf"
    try:
        report = widen(MIXTURE, big, **wanted)  # type: ignore[arg-type]
        assert_says_the_same(big, MIXTURE)
        h = read_header(str(big))
        assert (report.n_layer, h.n_trunk, h.n_mtp) == (wanted.get("n_layer", 4), wanted.get("n_layer", 4), 1)
        found, right = [], []
        for path in (MIXTURE, big):
            p = _core.Probe(options(path))
            found.append(experts(p, list(range(300, 316)), 0))
            with SwitchedDuo(path, **ENGINE, **OWN) as d:
                r = d.generate(PROMPTS[1], mode="sync", draft_tree="chain", temperature=0, **LIMITS)
                right.append((r.tokens, r.timings["draft_n_accepted"]))
        assert right[0] == right[1]
        if report.n_layer > 4:  # the others have the routers of the layers behind them
            assert routers(big) == routers(MIXTURE)
        elif _core.kernels()[0]:
            assert found[1] == found[0]
    finally:
        big.unlink(missing_ok=True)
