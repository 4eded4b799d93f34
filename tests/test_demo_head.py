"""The trained head that comes with duo: its guesses are right often enough, and the target's states are the reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prompts import PROMPTS

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.gguf_tools.widen import widen
from duo.gguf_tools.widen_head import widen_head
from duo.models import pairs

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measure_head import Right, by_age, draft_probe, per_pass, shifted, target_probe, texts

pytestmark = [pytest.mark.full, pytest.mark.daily]

TARGET, HEAD = pairs.paths("demo-eagle3")
# Least shares of right guesses by the age of the target's states; benchmarks/history/heads.md has what was measured.
FLOORS = (0.65, 0.65, 0.64, 0.63, 0.62)
N_CHAIN = 3


@pytest.fixture(scope="module")
def rights() -> tuple[Right, Right, float]:
    """Of ten held-out prompts: by age, with shifted states, and tokens of a pass."""
    with Duo(TARGET, n_ctx=512, n_threads=1) as d:
        written = texts(d, PROMPTS[:10], 64)
    reader, head = target_probe(str(TARGET), str(HEAD)), draft_probe(str(HEAD))
    ages, moved, lengths = [], [], []
    for text in written:
        reader.decode(text.tokens)
        features = reader.features()
        ages.append(by_age(head, text, features, len(FLOORS)))
        moved.append(shifted(head, text, features))
        lengths.append(per_pass(ages[-1]))
    return np.concatenate([a[: len(a) - len(FLOORS)] for a in ages]), np.concatenate(moved), float(np.mean(lengths))


def test_the_demo_head_is_right_often_enough_at_each_age(rights: tuple[Right, Right, float]) -> None:
    ages, moved, n = rights
    shares = ages.mean(0)
    assert (shares >= FLOORS).all(), shares
    assert n >= 2.5, "tokens of a pass with a chain of five"
    assert moved.mean() < FLOORS[0] - 0.1, "states of one token earlier must be worth less"


def test_the_pair_writes_the_targets_text() -> None:
    with Duo(TARGET, n_ctx=512) as d:
        plain = [d.generate(p, max_tokens=64, temperature=t, seed=3).tokens for p in PROMPTS[:3] for t in (0, 0.8)]
    with Duo.from_pair("demo-eagle3", n_ctx=512) as d:
        for mode in ("sync", "async"):
            found = [
                d.generate(p, max_tokens=64, temperature=t, seed=3, mode=mode).tokens
                for p in PROMPTS[:3]
                for t in (0, 0.8)
            ]
            assert found == plain, mode


@pytest.mark.parametrize("n_before", [1, 20])
def test_a_saved_text_goes_on_as_if_it_had_been_read(n_before: int) -> None:
    o: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "mode": "sync", "n_draft": 4, "draft_tree": "chain"}
    with Duo(TARGET, n_ctx=512) as d:
        prompts, rest = [d.tokenize(p) for p in PROMPTS[:6]], []
        for ids in prompts:
            ids += d.generate(ids, max_tokens=n_before + 40, temperature=0, ignore_eos=True).tokens
            rest.append(ids[-40:])
            del ids[-40:]
    with SwitchedDuo(TARGET, HEAD, n_ctx=512, always=True) as d:
        shares = {}
        for way in ("read", "loaded"):
            counts = np.zeros(2, int)
            for ids, want in zip(prompts, rest, strict=True):
                if way == "loaded":
                    assert d.generate(ids[:-n_before], max_tokens=n_before, **o).tokens == tuple(ids[-n_before:])
                    state = d.save_state()
                    assert state.draft is not None
                    assert state.draft.head.tokens == state.target.head.tokens
                d.generate("Quite another text, so that nothing is left of the first", max_tokens=20, **o)
                if way == "loaded":
                    d.load_state(state)
                assert d.generate(ids, max_tokens=40, **o).tokens == tuple(want)
                assert (d.timings["cache_n"] >= len(ids) - 2) == (way == "loaded")
                counts += d.timings["draft_n_accepted"], d.timings["draft_n"]
            shares[way] = counts[0] / counts[1]
    assert shares["loaded"] > 0.93 * shares["read"], shares


def test_a_widened_head_drafts_the_same_for_the_widened_target(tmp_path: Path) -> None:
    widen(TARGET, tmp_path / "target.gguf", n_embd=1280)
    widen_head(HEAD, tmp_path / "head.gguf", tmp_path / "target.gguf", n_embd=768, n_ff=1024)
    counts = []
    for target, head in ((TARGET, HEAD), (tmp_path / "target.gguf", tmp_path / "head.gguf")):
        with SwitchedDuo(target, head, n_ctx=512, n_draft=N_CHAIN, always=True) as d:
            rows = []
            for p in PROMPTS[:3]:
                text = d.generate(p, max_tokens=48, temperature=0, mode="sync", draft_tree="chain").tokens
                rows.append((text, d.timings["draft_n"], d.timings["draft_n_accepted"]))
            counts.append(rows)
    assert counts[0] == counts[1]
    assert all(accepted > 12 for _, _, accepted in counts[0])
