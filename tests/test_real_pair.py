"""Qwen2.5-Coder 1.5B with its 0.5B draft, a long run: every mode writes the target's text for every kind of work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import EXACT, STOCK
from real_files import CODER, CODER_DRAFT, need_models
from served import CALLED

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.real_questions import IDS, chosen

from duo import Duo

pytestmark = [pytest.mark.real, pytest.mark.proof]

N_TOKENS = 96
WAYS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "seeded": {"temperature": 0.8, "seed": 5}}
MODES: list[dict[str, Any]] = [
    {"mode": "sync", "n_draft": 1},
    {"mode": "sync", "n_draft": 4},
    {"mode": "async", "n_draft": 4},
    {"mode": "async"},
    {"mode": "async", "n_draft": 4, "spec_type": "draft-simple,ngram-map-k"},
    {"mode": "async", "n_draft": 8, "draft_tree": "dynamic"},
]
PROMPTS = [q.prompt for q in chosen(2 * len(IDS))]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Duo]:
    with Duo(*need_models(CODER, CODER_DRAFT), n_ctx=4096, n_parallel=4, **EXACT) as d:
        yield d


@pytest.fixture(scope="module")
def right() -> dict[str, list[tuple[int, ...]]]:
    """Each text by the target alone, in a Duo that has no draft."""
    with Duo(*need_models(CODER), n_ctx=2048, **EXACT) as d:
        return {
            way: [d.generate(p, max_tokens=N_TOKENS, **options).tokens for p in PROMPTS]
            for way, options in WAYS.items()
        }


@pytest.mark.parametrize("way", WAYS)
def test_text_is_the_targets(way: str, pair: Duo, right: dict[str, list[tuple[int, ...]]]) -> None:
    n_drafted = n_accepted = 0
    for i, prompt in enumerate(PROMPTS):
        for options in MODES:
            text = pair.generate(prompt, max_tokens=N_TOKENS, **WAYS[way], **options).tokens
            assert text == right[way][i], f"question {i}, {options}"
            n_drafted += pair.timings["draft_n"]
            n_accepted += pair.timings["draft_n_accepted"]
    assert n_drafted > 1000 and 0.2 < n_accepted / n_drafted < 0.95


@pytest.mark.parametrize("way", WAYS)
def test_text_in_company(way: str, pair: Duo, right: dict[str, list[tuple[int, ...]]]) -> None:
    found = pair.generate_many(PROMPTS, max_tokens=N_TOKENS, **WAYS[way])
    assert [r.tokens for r in found] == right[way]


def test_stock_kernels_under_strict() -> None:
    with Duo(*need_models(CODER, CODER_DRAFT), n_ctx=2048, **STOCK) as d:
        for prompt in PROMPTS[:3]:
            texts = {d.generate(prompt, temperature=0, max_tokens=48, **o).tokens for o in ({"mode": "plain"}, *MODES)}
            assert len(texts) == 1


def test_calls_and_json(pair: Duo) -> None:
    messages = [{"role": "user", "content": "Roll a die with twelve sides, named red."}]
    calls, texts = set(), set()
    for mode in ("plain", "sync", "async"):
        options: dict[str, Any] = {"mode": mode, "n_draft": 4, "temperature": 0, "max_tokens": 96}
        answer = pair.create_chat_completion(messages, tools=[CALLED], **options)
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["sides"] == 12
        calls.add(call["function"]["arguments"])
        asked = [{"role": "user", "content": "Who wrote Hamlet, and when was he born? Answer in JSON."}]
        wanted = {"type": "json_object", "schema": PERSON}
        text = pair.create_chat_completion(asked, response_format=wanted, **options)["choices"][0]["message"]["content"]
        jsonschema.validate(json.loads(text), PERSON)
        assert json.loads(text)["born"] == 1564
        texts.add(text)
    assert len(calls) == len(texts) == 1
