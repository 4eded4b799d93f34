"""Calls of tools in chats over HTTP: as they come, in the next prompt, and one alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import CALLED, TALE, Server


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "roll"}}])
def test_a_call_of_a_tool_comes_in_pieces(server: Server, choice: Any) -> None:
    body = {"messages": TALE, "tools": [CALLED], "tool_choice": choice, "seed": 3, "max_tokens": 200}
    whole = server.post("/v1/chat/completions", body).json()["choices"][0]
    (call,) = whole["message"]["tool_calls"]
    assert whole["finish_reason"] == "tool_calls" and call["function"]["name"] == "roll"
    events = server.events("/v1/chat/completions", body)
    pieces = [p for _, e in events[:-1] for c in e["choices"] for p in c["delta"].get("tool_calls", ())]
    assert len(pieces) > 3 and {p["index"] for p in pieces} == {0}
    assert [p["function"]["name"] for p in pieces if "name" in p["function"]] == ["roll"]
    assert "id" in pieces[0] and not any("id" in p for p in pieces[1:])
    arguments = "".join(p["function"]["arguments"] for p in pieces)
    assert json.loads(arguments) == json.loads(call["function"]["arguments"])
    assert events[-2][1]["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_that_the_template_does_not_show_are_in_the_next_prompt(server: Server) -> None:
    function = {"name": "roll", "arguments": '{"sides":6}'}
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    told = [*TALE, called, {"role": "tool", "tool_call_id": "x", "content": "4"}]
    prompt = server.post("/apply-template", {"messages": told, "tools": [CALLED]}).json()["prompt"]
    call = '<tool_call>\n{"name": "roll", "arguments": {"sides":6}}\n</tool_call>'
    assert f"<|im_start|>assistant\n{call}<|im_end|>\n<|im_start|>tool\n4<|im_end|>" in prompt
    caps = server.get("/props").json()["chat_template_caps"]
    assert caps["supports_tools"] and caps["supports_system_role"] and not caps["supports_tool_calls"]


def test_one_call_if_the_request_says_so(server: Server) -> None:
    """Frameworks that set parallel_tool_calls break on a second call."""
    call = '<tool_call>{"name": "roll", "arguments": {}}</tool_call>'
    asked = {"grammar": "root ::= " + json.dumps(call * 2), "max_tokens": 200, "temperature": 0}
    chat = {"messages": TALE, "tools": [CALLED], **asked}
    tool = {"name": "roll", "input_schema": CALLED["function"]["parameters"]}
    messages = {"messages": TALE, "tools": [tool], "tool_choice": {"type": "auto"}, **asked}
    responses = {"input": "Roll.", "tools": [{"type": "function", "name": "roll"}], **asked}
    off: dict[str, Any] = {"parallel_tool_calls": False}
    anthropic_off = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    for n, told, of_messages in ((2, {}, {}), (1, off, anthropic_off)):
        message = server.post("/v1/chat/completions", {**chat, **told}).json()["choices"][0]["message"]
        assert len(message["tool_calls"]) == n and message["content"] is None
        events = server.events("/v1/chat/completions", {**chat, **told})
        pieces = [p for _, e in events[:-1] for c in e["choices"] for p in c["delta"].get("tool_calls", ())]
        assert {p["index"] for p in pieces} == set(range(n)) and not any(
            c["delta"].get("content") for _, e in events[:-1] for c in e["choices"]
        )
        blocks = server.post("/v1/messages", {**messages, **of_messages}).json()["content"]
        assert [b["type"] for b in blocks] == ["tool_use"] * n
        response = server.post("/v1/responses", {**responses, **told}).json()
        assert response["parallel_tool_calls"] is (n == 2)
        assert [x["type"] for x in response["output"]] == ["function_call"] * n
