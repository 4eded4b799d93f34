"""`duo serve`: OpenAI's chats, field by field, on the demo pair."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from served import CALLED, GREEDY, TALE, Server, served
from sizes import LARGE, mostly_daily

from duo import Duo

ROUTES = ["/v1/chat/completions", "/v1/completions"]


def text_of(events: list[tuple[str, Any]]) -> str:
    return "".join(c["delta"].get("content") or "" for _, e in events[:-1] for c in e["choices"])


# ---- chats


def test_a_chat(server: Server, alone: Duo) -> None:
    answer = server.post("/v1/chat/completions", {"messages": TALE, **GREEDY, "model": "any"}).json()
    right = alone.create_chat_completion(TALE, **GREEDY)
    (choice,) = answer["choices"]
    written = {"role": "assistant", "content": right["choices"][0]["message"]["content"]}
    assert choice["message"] == {**written, "refusal": None, "annotations": []} and choice["logprobs"] is None
    assert choice["finish_reason"] == "length" and choice["index"] == 0
    assert answer["object"] == "chat.completion" and answer["model"] == "demo" and answer["id"].startswith("chatcmpl-")
    usage, timings = answer["usage"], answer["timings"]
    assert usage["completion_tokens"] == 16 and usage["prompt_tokens"] == right["usage"]["prompt_tokens"]
    assert usage["total_tokens"] == 16 + usage["prompt_tokens"]
    assert timings["predicted_n"] == 16 and timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert timings["queue_ms"] >= 0 and math.isfinite(timings["predicted_per_second"])


def test_a_streamed_chat(server: Server, alone: Duo) -> None:
    events = server.events(
        "/v1/chat/completions", {"messages": TALE, **GREEDY, "stream_options": {"include_usage": True}}
    )
    assert events[-1] == ("", "[DONE]")
    chunks = [e for _, e in events[:-1]]
    assert len({c["id"] for c in chunks}) == 1 and {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert {c["model"] for c in chunks} == {"demo"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None} and "timings" not in chunks[0]
    assert all("role" not in c["choices"][0]["delta"] for c in chunks[1:-1])
    assert chunks[-2]["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 16
    assert chunks[-1]["timings"]["predicted_n"] == 16
    assert text_of(events) == alone.create_chat_completion(TALE, **GREEDY)["choices"][0]["message"]["content"]
    without = server.events("/v1/chat/completions", {"messages": TALE, **GREEDY})
    assert "usage" not in without[-2][1] and without[-2][1]["timings"]["predicted_n"] == 16


@pytest.mark.parametrize("dialect", ["chat/completions", "responses", "messages"])
def test_counted_tokens_are_those_of_the_prompt(server: Server, alone: Duo, dialect: str) -> None:
    """With the tools that the template shows."""
    f = CALLED["function"]
    tool = {
        "chat/completions": CALLED,
        "responses": {"type": "function", **f},
        "messages": {"name": f["name"], "input_schema": f["parameters"]},
    }[dialect]
    count = "count_tokens" if dialect == "messages" else "input_tokens"
    said = "<|im_start|>user\nTell me a tale.<|im_end|>\n<|im_start|>assistant\n"
    counts = []
    for tools, shown in ([], ""), ([tool], "roll"), ([tool] * 3, "roll roll roll"):
        body = {"input" if dialect == "responses" else "messages": TALE, **({"tools": tools} if tools else {})}
        prompt = (f"<|im_start|>system\nTools: {shown}<|im_end|>\n" if tools else "") + said
        counts.append(server.post(f"/v1/{dialect}/{count}", body).json()["input_tokens"])
        assert counts[-1] == len(alone.tokenize(prompt, add_bos=alone.chat_template.add_special, special=True))
        limit = "max_output_tokens" if dialect == "responses" else "max_tokens"
        usage = server.post(f"/v1/{dialect}", {**body, limit: 1}).json()["usage"]
        used = usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
        assert used == counts[-1]
    assert counts[0] < counts[1] < counts[2]


def test_who_wrote_each_token(server: Server) -> None:
    events = server.events("/v1/chat/completions", {"messages": TALE, **GREEDY, "timings_per_token": True})
    tokens = [t for _, e in events[:-1] for t in e.get("duo", {}).get("tokens", ())]
    assert len(tokens) == 16 and {type(t["from_draft"]) for t in tokens} == {bool}
    figures = [e["timings"] for _, e in events[1:-1]]
    assert [t["predicted_n"] for t in figures] == sorted(t["predicted_n"] for t in figures)
    whole = server.post("/v1/chat/completions", {"messages": TALE, **GREEDY, "timings_per_token": True}).json()
    assert [t["id"] for t in whole["duo"]["tokens"][0]] == [t["id"] for t in tokens]


@pytest.mark.parametrize("route", mostly_daily([*ROUTES, "/v1/responses", "/completion"], ["/v1/chat/completions"]))
def test_a_stream_tells_how_much_of_the_prompt_is_read(route: str) -> None:
    with served(n_batch=64, n_parallel=1, delay=(2_000, 1)) as s:
        words = "Once upon a time there was a frog. " * 40
        body = {"messages": [{"role": "user", "content": words}], "prompt": words, "input": words, "max_tokens": 4}
        cached = []
        for _ in range(2):
            found = [e["prompt_progress"] for _, e in s.events(route, {**body, "return_progress": True})
                     if e != "[DONE]" and "prompt_progress" in e]  # fmt: skip
            assert found[0]["cache"] == found[0]["processed"] and found[-1]["processed"] == found[-1]["total"] > 300
            assert len({(f["cache"], f["total"]) for f in found}) == 1
            steps = [f["processed"] for f in found]
            assert steps == sorted(set(steps))
            cached.append(found[0]["cache"])
        asked = {**body, "return_progress": True, "timings_per_token": True, "cache_prompt": False}
        first = s.events("/completion", asked)[0][1]
        assert (
            first["prompt_progress"]["processed"] == first["timings"]["prompt_n"] == first["timings"]["prompt_ms"] == 0
        )
        assert first["timings"]["predicted_n"] == first["tokens_predicted"] == 0
        assert cached[0] == 0 and cached[1] == found[0]["total"] - 1
        assert not any("prompt_progress" in e for _, e in s.events(route, body))


def test_several_choices(server: Server) -> None:
    body = {"messages": TALE, "max_tokens": 12, "n": 3, "seed": 5, "temperature": 1.2}
    found = server.post("/v1/chat/completions", body).json()
    texts = [c["message"]["content"] for c in found["choices"]]
    assert [c["index"] for c in found["choices"]] == [0, 1, 2] and len(set(texts)) > 1
    alone = [
        server.post("/v1/chat/completions", {**body, "n": 1, "seed": 5 + i}).json()["choices"][0]["message"]["content"]
        for i in range(3)
    ]
    assert texts == alone
    events = server.events("/v1/chat/completions", body)
    streamed = {0: "", 1: "", 2: ""}
    for _, e in events[:-1]:
        for c in e["choices"]:
            streamed[c["index"]] += c["delta"].get("content") or ""
    assert list(streamed.values()) == texts
    assert server.post("/v1/chat/completions", {**body, "n": 5}).status_code == 400
    assert server.post("/v1/chat/completions", {**body, "n": 0}).status_code == 400


def test_log_probabilities(server: Server, alone: Duo) -> None:
    body = {"messages": TALE, **GREEDY, "logprobs": True, "top_logprobs": 2}
    found = server.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    assert len(found) == 16
    right = alone.create_chat_completion(TALE, **GREEDY, logprobs=True, top_logprobs=2)
    for mine, theirs in zip(found, right["choices"][0]["logprobs"]["content"], strict=True):
        assert mine["token"] == theirs["token"] and mine["logprob"] == pytest.approx(theirs["logprob"], abs=1e-4)
        assert bytes(mine["bytes"]).decode("utf-8", "replace") == mine["token"] and len(mine["top_logprobs"]) == 2
    events = server.events("/v1/chat/completions", body)
    streamed = [t for _, e in events[:-1] for c in e["choices"] for t in (c.get("logprobs") or {}).get("content", ())]
    assert [t["id"] for t in streamed] == [t["id"] for t in found]
    assert server.post("/v1/chat/completions", {"messages": TALE, "top_logprobs": 2}).status_code == 400


def test_an_answer_that_has_begun_goes_on(server: Server) -> None:
    begun = [*TALE, {"role": "assistant", "content": "There was a frog"}]
    prompt = server.post("/apply-template", {"messages": begun}).json()["prompt"]
    assert prompt.endswith("<|im_start|>assistant\nThere was a frog")
    assert server.post("/apply-template", {"messages": [*begun, begun[-1]]}).status_code == 400
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "a tale?"}]
    in_parts = [{"role": role, "content": parts} for role in ("user", "assistant")]
    prompt = server.post("/apply-template", {"messages": in_parts}).json()["prompt"]  # as llama.cpp puts them together
    assert "user\nWhat is\na tale?<|im_end|>" in prompt and prompt.endswith("assistant\nWhat is\n\na tale?")


def test_an_answer_is_gone_on_with_by_vllms_name(server: Server) -> None:
    begun = [*TALE, {"role": "assistant", "content": "There was a frog"}]
    path, asked = "/apply-template", {"continue_final_message": True}
    right = server.post(path, {"messages": begun}).json()["prompt"]
    for more in (asked, {"continue_final_message": "content"}, {**asked, "add_generation_prompt": False}):
        assert server.post(path, {"messages": begun, **more}).json()["prompt"] == right
    calls = [{"type": "function", "function": {"name": "roll", "arguments": "{}"}}]
    called = [*TALE, {"role": "assistant", "content": "", "tool_calls": calls}]
    for messages, more in (
        (begun, {**asked, "add_generation_prompt": True}),
        (begun, {"continue_final_message": "thoughts"}),
        (TALE, asked),
        (called, asked),
    ):
        bad = server.post(path, {"messages": messages, **more})
        assert bad.status_code == 400 and "continue_final_message" in bad.json()["error"]["message"]


@pytest.mark.parametrize("route", ROUTES)
def test_a_verbose_answer_tells_the_prompt_and_the_settings(server: Server, alone: Duo, route: str) -> None:
    body = {"messages": TALE, "prompt": "Once", **GREEDY}
    found = server.post(route, {**body, "verbose": True}).json()["__verbose"]
    right = alone.tokenize("Once")
    if "chat" in route:
        right = alone.tokenize(server.post("/apply-template", body).json()["prompt"], False, True)
    assert alone.tokenize(found["prompt"], False, True)[-len(right) :] == right
    assert found["generation_settings"]["n_predict"] == 16 and found["content"]
    assert "__verbose" not in server.post(route, body).json()
    events = server.events(route, {**body, "verbose": True})
    assert [e["__verbose"]["prompt"] for _, e in events[:-1] if "__verbose" in e] == [found["prompt"]]


def test_parts_are_put_together_alike_in_all_dialects(server: Server) -> None:
    whole = {"messages": [{"role": "user", "content": "What is\na tale?"}]}
    right = server.post("/v1/chat/completions/input_tokens", whole).json()["input_tokens"]
    for path, name, kind in (
        ("/v1/chat/completions/input_tokens", "messages", "text"),
        ("/v1/messages/count_tokens", "messages", "text"),
        ("/v1/responses/input_tokens", "input", "input_text"),
    ):
        parts = [{"type": kind, "text": words} for words in ("What is", "a tale?")]
        found = server.post(path, {name: [{"role": "user", "content": parts}]}).json()
        assert found["input_tokens"] == right, path


def test_thoughts_stand_apart(server: Server) -> None:
    body = {"messages": TALE, "max_tokens": 24, "seed": 1, "chat_template_kwargs": {"enable_thinking": True}}
    message = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    assert message["reasoning_content"] and message["content"] == ""
    raw = server.post("/v1/chat/completions", {**body, "reasoning_format": "none"}).json()["choices"][0]["message"]
    assert raw["content"].strip() == message["reasoning_content"].strip()
    events = server.events("/v1/chat/completions", body)
    streamed = "".join(c["delta"].get("reasoning_content") or "" for _, e in events[:-1] for c in e["choices"])
    assert streamed == message["reasoning_content"]
    off = server.post("/v1/chat/completions", {**body, "chat_template_kwargs": None, "reasoning_effort": "none"}).json()
    assert "reasoning_content" not in off["choices"][0]["message"]


# ---- shapes


def test_structured_output(server: Server) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for form in ({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
                 {"type": "json_object", "schema": schema}):  # fmt: skip
        body = {"messages": TALE, "max_tokens": 60, "response_format": form, "seed": 1}
        found = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
        assert isinstance(json.loads(found)["n"], int)
    bad = server.post("/v1/chat/completions", {"messages": TALE, "response_format": {"type": "xml"}})
    assert bad.status_code == 400 and "response_format" in bad.json()["error"]["message"]
    grammar = {"messages": TALE, "grammar": 'root ::= "yes" | "no"'}
    assert server.post("/v1/chat/completions", grammar).json()["choices"][0]["message"]["content"] in ("yes", "no")
    for more in ({"json_schema": {}}, {"response_format": {"type": "json_object"}}):
        assert server.post("/v1/chat/completions", {**grammar, **more}).status_code == 400


@pytest.mark.parametrize("messages", [None, [], "hello", [{}], [{"role": "user", "content": 3}], [{"role": "user"}]])
def test_bad_conversations(server: Server, messages: Any) -> None:
    assert server.post("/v1/chat/completions", {"messages": messages}).status_code == 400


# For every field that is a number.
NUMBERS = (-1, -(2**63), 2**31, 10**400, -1e308, 1e308)


@pytest.mark.random
@pytest.mark.parametrize(
    "route",
    [
        "/completion",
        *(pytest.param(f"/v1/{x}", marks=pytest.mark.daily) for x in ("chat/completions", "responses", "messages")),
    ],
)
def test_negative_and_huge_numbers(server: Server, route: str) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    fields = paths[route]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    numbers = [name for name, f in fields.items()
               if any(x.get("type") in ("integer", "number") for x in [f, *f.get("anyOf", ())])]  # fmt: skip
    assert {"temperature", "n_predict", "seed"} <= set(numbers)
    lists = [("stop", [-1]), ("logit_bias", [[-1, -1e308]]), ("draft", {"n_max": -1, "n_min": -1, "p_min": -1}),
             ("draft", {"n_max": 10**400}), ("speculative.n_max", -(10**400)), ("speculative.p_min", 1e308),
             ("logit_bias", [[10**400, 10**400]])]  # fmt: skip
    with httpx.Client(base_url=server.url, timeout=HANG_S) as client:
        step = 1 if LARGE else 6  # each field has one of the numbers
        some = [(n, v) for i, n in enumerate(numbers) for j, v in enumerate(NUMBERS) if (i + j) % step == 0]
        for i, (name, value) in enumerate([*some, *lists]):
            few = {"max_tokens": 2, "max_output_tokens": 2}
            body = {"prompt": "a", "messages": TALE, "input": "a", **few, "stream": i % 2 == 0, name: value}
            if name in ("n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens"):
                body = {**body, "grammar": 'root ::= "yes"', "stop": ["y"]}  # or it is as long as the context
            answer = client.post(route, json=body)
            assert answer.status_code in (200, 400), (name, value, answer.text)
            assert "Traceback" not in answer.text and '"server_error"' not in answer.text, (name, value)
