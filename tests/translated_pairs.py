"""Pairs of models with different vocabularies, and what is checked of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HELD
from model_files import options
from translations import GAP, Translation
from written_vocabularies import Vocabulary, write_model

from duo import Duo, _core
from duo.gguf_tools.switched_duo import SwitchedDuo

N_TOKENS = 24
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": N_TOKENS, "ignore_eos": True, "draft_window": "all"}
SAMPLINGS: tuple[dict[str, Any], ...] = (
    GREEDY,
    {**GREEDY, "temperature": 0.8, "seed": 3},
    {**GREEDY, "temperature": 1.2, "seed": 4, "top_k": 5, "repeat_penalty": 1.2},
    {**GREEDY, "temperature": 0.7, "seed": 5, "ignore_eos": False},
)


@dataclass(frozen=True)
class Case:
    """order: of the letters, which target and draft mostly agree on. noise: of `write_model`."""

    target: Vocabulary
    draft: Vocabulary
    order: str
    prompts: tuple[tuple[int, ...], ...]
    seeds: tuple[int, int] = (1, 1)
    noise: float = 1.0

    @contextmanager
    def loaded(self, folder: Path) -> Iterator[tuple[Duo, _core.Probe]]:
        """The pair, and the draft alone."""
        order = self.order.encode()
        target = write_model(folder / "target.gguf", self.target, order, self.seeds[0], self.noise)
        draft = write_model(folder / "draft.gguf", self.draft, order, self.seeds[1], self.noise)
        probe = _core.Probe(options(draft, n_ctx=1024), is_draft=True)
        with SwitchedDuo(target, draft, n_ctx=256, n_ctx_draft=1024, **HELD, **EXACT) as d:
            yield d, probe


def check_guesses(d: Duo, case: Case, probe: _core.Probe) -> int:
    """Each guess, one in a pass, is right where it has to be. Returns how many are."""
    words = Translation(case.target, case.draft)
    assert [d.target.piece(i) for i in range(len(case.target.tokens))] == [t.piece for t in case.target.tokens]
    assert d.engine.shared_vocabulary == pytest.approx(words.shared)
    n_right = 0
    for prompt in case.prompts:
        r = d.generate(list(prompt), mode="sync", n_draft=1, **GREEDY)
        assert r.warning == ""
        best = words.guesses([*prompt, *r.tokens], probe)[len(prompt) - 1 :]
        # A pass has one guess, but not always the one that reads the prompt, and none where the text ends. If it is
        # right, the next token is the target's own.
        at = 0 if r.from_draft[0] else 1
        while at < len(r.tokens) - 1:
            guess, gap = best[at]
            if gap < GAP:
                break
            assert r.from_draft[at] == (guess == r.tokens[at]), (at, guess, r.tokens)
            n_right += r.from_draft[at]
            at += 2 if r.from_draft[at] else 1
    return n_right


def check_texts(d: Duo, case: Case, sampling: dict[str, Any], way: dict[str, Any]) -> None:
    """No way of guessing changes a text."""
    for prompt in case.prompts:
        want = d.generate(list(prompt), mode="plain", **sampling)
        got = d.generate(list(prompt), **sampling, **way)
        assert (got.tokens, got.text, got.warning) == (want.tokens, want.text, ""), way


WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "sync", "n_draft": 4},
    {"mode": "async", "n_draft": 8},
    {"mode": "async", "draft_tree": "dynamic", "n_draft": 8},
    {"mode": "sync", "draft_tree": [[0], [1], [0, 0], [1, 0]]},
)
