"""The same request through Python's calls (llama_cpp's) and through the server (llama-server's): one formatter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from served import CALLED, GREEDY, PROMPT, TALE, Server

from duo import Duo

# What differs, and why.
MADE_ANEW = {"id", "created"}
NAMES = {"model"}  # the path of the file; the alias of the server
OF_SERVERS = {"system_fingerprint", "timings", "prompt_tokens_details", "annotations"}  # llama_cpp has none of them
OF_TOKENS = {"id", "bytes"}  # in rows of log-probabilities; llama_cpp has None for the bytes
COUNTS = {"usage"}  # see `same_usage`
LEFT_OUT = COUNTS | MADE_ANEW | NAMES | OF_SERVERS | OF_TOKENS


def common(x: Any) -> Any:
    """What both ways must say. None and absent are the same: of log-probabilities llama-server then says nothing."""
    if isinstance(x, dict):
        return {k: common(v) for k, v in x.items() if k not in LEFT_OUT and v is not None}
    return [common(v) for v in x] if isinstance(x, list) else x


def same_usage(ours: Any, theirs: Any, asked: dict[str, Any]) -> bool:
    """llama-server counts the token that ends a text, and llama_cpp does not."""
    ended = theirs["choices"][0]["finish_reason"] != "length" and "stop" not in asked
    a, b = ours["usage"], theirs["usage"]
    same_prompt = a["prompt_tokens"] == b["prompt_tokens"]
    return bool(same_prompt and b["completion_tokens"] == a["completion_tokens"] + ended)


def parts_of(events: list[tuple[str, Any]]) -> list[Any]:
    """A stream of the server."""
    return [data for _, data in events if data != "[DONE]"]


COMPLETIONS: list[dict[str, Any]] = [
    {},
    {"stop": ["time", "the"]},
    {"max_tokens": 5, "seed": 3, "temperature": 1.0},
    {"grammar": 'root ::= "Once upon"'},
    {"grammar": 'root ::= "h\u00e9 \U0001f438 x" [a-z]{20}'},
]


@pytest.mark.parametrize("options", COMPLETIONS, ids=str)
def test_a_completion(server: Server, alone: Duo, options: dict[str, Any]) -> None:
    asked = {**GREEDY, **options}
    ours = alone.create_completion(PROMPT, **asked)
    theirs = server.post("/v1/completions", {"prompt": PROMPT, **asked}).json()
    assert common(theirs) == common(ours) and same_usage(ours, theirs, asked)
    assert ours.keys() <= theirs.keys() and theirs.keys() - ours.keys() <= OF_SERVERS
    parts = list(alone.create_completion(PROMPT, stream=True, **asked))
    events = server.events("/v1/completions", {"prompt": PROMPT, **asked})
    assert list(map(common, parts_of(events))) == list(map(common, parts))


@pytest.mark.parametrize("echo", [False, True])
def test_log_probabilities_of_a_completion(server: Server, alone: Duo, echo: bool) -> None:
    """llama-server adds its own rows to OpenAI's four lists."""
    asked = {**GREEDY, "logprobs": 2, "echo": echo}
    ours = alone.create_completion(PROMPT, **asked)
    theirs = server.post("/v1/completions", {"prompt": PROMPT, **asked}).json()
    rows = theirs["choices"][0]["logprobs"].pop("content")
    lists = ours["choices"][0]["logprobs"]
    assert close(common(theirs)) == close(common(ours))
    n = len(rows)
    assert [r["token"] for r in rows] == lists["tokens"][-n:]
    assert [round(r["logprob"], 2) for r in rows] == [round(p, 2) for p in lists["token_logprobs"][-n:]]


def close(x: Any) -> Any:
    """Prompts are read in batches of other sizes, so the last digits of log-probabilities differ."""
    if isinstance(x, dict):
        return {k: close(v) for k, v in x.items()}
    return [close(v) for v in x] if isinstance(x, list) else pytest.approx(x, abs=1e-3) if isinstance(x, float) else x


CHATS: list[dict[str, Any]] = [
    {},
    {"stop": ["a"]},
    {"logprobs": True, "top_logprobs": 2},
    {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_format": "auto"},
    {"reasoning_format": "auto", "grammar": 'root ::= "<think>Hm.</think>Hi " [a-z]{10}'},
    {"tools": [CALLED], "tool_choice": "required", "max_tokens": 200, "seed": 3, "temperature": 1.0},
    {"tools": [CALLED], "grammar": 'root ::= "Look: " [a-z]{10}', "reasoning_format": "auto"},
]


@pytest.mark.parametrize("options", CHATS, ids=str)
def test_a_chat(server: Server, alone: Duo, options: dict[str, Any]) -> None:
    asked = {"reasoning_format": "none", **GREEDY, **options}
    ours = alone.create_chat_completion(TALE, **asked)
    theirs = server.post("/v1/chat/completions", {"messages": TALE, **asked}).json()
    assert close(common(theirs)) == close(common(ours)) and same_usage(ours, theirs, asked)
    parts = list(alone.create_chat_completion(TALE, stream=True, **asked))
    events = server.events("/v1/chat/completions", {"messages": TALE, **asked})
    assert list(map(close, map(common, parts_of(events)))) == list(map(close, map(common, parts)))


def test_ids_begin_alike(server: Server, alone: Duo) -> None:
    one = {"max_tokens": 1}
    ours: list[Any] = [alone.create_completion(PROMPT, **one), alone.create_chat_completion(TALE, **one)]
    theirs = [
        server.post("/v1/completions", {"prompt": PROMPT, **one}).json(),
        server.post("/v1/chat/completions", {"messages": TALE, **one}).json(),
    ]
    for answers in (ours, theirs):
        for answer, begin in zip(answers, ("cmpl", "chatcmpl"), strict=True):
            assert re.fullmatch(begin + "-[0-9a-f-]{32,36}", answer["id"])


def test_a_tool_by_its_name(server: Server, alone: Duo) -> None:
    """llama_cpp tells the call twice, and each part has its name; the server reads it like any other call."""
    choice = {"type": "function", "function": {"name": "roll"}}
    asked = {"tools": [CALLED], "tool_choice": choice, "seed": 3, "temperature": 1.0, "max_tokens": 200}
    ours = alone.create_chat_completion(TALE, **asked)["choices"][0]
    theirs = server.post("/v1/chat/completions", {"messages": TALE, **asked}).json()["choices"][0]
    assert ours["finish_reason"] == theirs["finish_reason"] == "tool_calls"
    assert ours["message"].keys() - theirs["message"].keys() == {"function_call"}
    (a,), (b,) = ours["message"]["tool_calls"], theirs["message"]["tool_calls"]
    assert a["function"]["name"] == b["function"]["name"] == ours["message"]["function_call"]["name"] == "roll"
    assert a["function"]["arguments"].strip() == b["function"]["arguments"]
    assert a["id"].startswith("call__0_roll_cmpl-") and b["id"].startswith("call_")


def test_an_empty_message_has_a_block_both_ways(server: Server) -> None:
    body = {"messages": TALE, "grammar": 'root ::= ""', "max_tokens": 4}
    whole = server.post("/v1/messages", body).json()["content"]
    events = [e for _, e in server.events("/v1/messages", body)]
    assert whole == [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert whole[0]["text"] == "" and [e["type"] for e in events].count("content_block_stop") == 1


def test_several_texts_end_without_a_chunk_that_has_none(server: Server) -> None:
    """OpenAI's clients expect one with include_usage only."""
    body = {"prompt": PROMPT, **GREEDY, "n": 2}
    parts = parts_of(server.events("/v1/completions", body))
    assert all(p["choices"] for p in parts)
    assert [p["usage"]["completion_tokens"] for p in parts if "usage" in p] == [32] and "usage" in parts[-1]
    told = parts_of(server.events("/v1/completions", {**body, "stream_options": {"include_usage": True}}))
    assert [bool(p["choices"]) for p in told if "usage" in p] == [False]
