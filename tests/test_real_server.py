"""A server with a real model: chats, streams, calls of tools and JSON have the text of the target alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from conftest import EXACT
from real_files import SMOLLM2, need_models
from served import CALLED, Server, served

from duo import Duo
from duo.chat.tools_in_words import described

pytestmark = [pytest.mark.real, pytest.mark.slow]

CHAT = "/v1/chat/completions"
QUESTIONS = ["What is the capital of France?", "Name three colours.", "Write a line about the sea.", "What is 2 + 2?"]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    (path,) = need_models(SMOLLM2)
    with served(model=path, draft=path, n_draft=4, n_threads=1, n_threads_draft=1, always=True, **EXACT) as s:
        yield s


@pytest.fixture(scope="module")
def target() -> Iterator[Duo]:
    (path,) = need_models(SMOLLM2)
    with Duo(path, n_ctx=2048, n_threads=1, **EXACT) as d:
        yield d


def content(answer: Any) -> str:
    found: str = answer["choices"][0]["message"]["content"]
    return found


def test_chats_at_once_and_streams_have_the_targets_text(server: Server, target: Duo) -> None:
    right = [content(target.create_chat_completion(asked(q), **GREEDY)) for q in QUESTIONS]
    assert all(right) and "4" in right[3]
    bodies = [{"messages": asked(q), **GREEDY} for q in QUESTIONS]
    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = list(threads.map(lambda body: server.post(CHAT, body).json(), bodies))
    assert [content(a) for a in answers] == right
    assert sum(a["timings"].get("draft_n_accepted", 0) for a in answers) > 0  # a short one may have had no draft
    for body, text in zip(bodies, right, strict=True):
        events = server.events(CHAT, body)
        deltas = [c["delta"].get("content") or "" for _, e in events[:-1] for c in e["choices"]]
        assert "".join(deltas) == text and len(deltas) > 2


def test_a_sampled_chat_depends_on_its_seed_only(server: Server, target: Duo) -> None:
    sampled = {"temperature": 1.0, "max_tokens": 24, "seed": 3}
    right = content(target.create_chat_completion(asked(QUESTIONS[2]), **sampled))
    assert content(server.post(CHAT, {"messages": asked(QUESTIONS[2]), **sampled}).json()) == right
    other = server.post(CHAT, {"messages": asked(QUESTIONS[2]), **sampled, "seed": 4}).json()
    assert content(other) != right


def test_a_call_has_the_arguments_that_its_schema_allows(server: Server, target: Duo) -> None:
    options = {"tools": [CALLED], "tool_choice": {"type": "function", "function": {"name": "roll"}}, **GREEDY}
    options["max_tokens"] = 64
    answer = server.post(CHAT, {"messages": asked("Roll a die with six sides."), **options}).json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "roll"
    jsonschema.validate(json.loads(call["function"]["arguments"]), CALLED["function"]["parameters"])
    # SmolLM2's template has no place for tools: the server describes them, create_chat_completion does not.
    told = described(asked("Roll a die with six sides."), [CALLED])
    same = target.create_chat_completion(told, **options)
    (right,) = same["choices"][0]["message"]["tool_calls"]
    assert call["function"] == right["function"]


def test_json_has_the_schema_and_the_targets_text(server: Server, target: Duo) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    body = {"messages": asked("Who wrote Hamlet, and how old was he?"), **GREEDY, "max_tokens": 64}
    text = content(server.post(CHAT, {**body, "response_format": wanted}).json())
    jsonschema.validate(json.loads(text), PERSON)
    same = {"type": "json_object", "schema": PERSON}
    assert text == content(
        target.create_chat_completion(body["messages"], response_format=same, temperature=0, max_tokens=64)
    )
