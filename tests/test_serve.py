"""`duo serve`: llama-server's and OpenAI's routes, field by field, on the demo pair."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from served import CALLED, TALE, TEMPLATE, Server, served

from duo import Duo

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(chat_template=TEMPLATE, _always=True) as s:
        yield s


@pytest.fixture(scope="module")
def alone() -> Iterator[Duo]:
    with Duo(n_ctx=2048, chat_template=TEMPLATE) as d:
        yield d


def text_of(events: list[tuple[str, Any]]) -> str:
    return "".join(c["delta"].get("content") or "" for _, e in events[:-1] for c in e["choices"])


# ---- chats


def test_a_chat(server: Server, alone: Duo) -> None:
    answer = server.post("/v1/chat/completions", {"messages": TALE, **GREEDY, "model": "any"}).json()
    right = alone.create_chat_completion(TALE, **GREEDY)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": right["choices"][0]["message"]["content"]}
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


def test_who_wrote_each_token(server: Server) -> None:
    events = server.events("/v1/chat/completions", {"messages": TALE, **GREEDY, "timings_per_token": True})
    tokens = [t for _, e in events[:-1] for t in e.get("duo", {}).get("tokens", ())]
    assert len(tokens) == 16 and {type(t["from_draft"]) for t in tokens} == {bool}
    figures = [e["timings"] for _, e in events[1:-1]]
    assert [t["predicted_n"] for t in figures] == sorted(t["predicted_n"] for t in figures)
    whole = server.post("/v1/chat/completions", {"messages": TALE, **GREEDY, "timings_per_token": True}).json()
    assert [t["id"] for t in whole["duo"]["tokens"][0]] == [t["id"] for t in tokens]


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


# ---- tools and shapes


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "roll"}}])
def test_a_call_of_a_tool_comes_in_pieces(server: Server, choice: Any) -> None:
    import json

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


def test_structured_output(server: Server) -> None:
    import json

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


# ---- completions


def test_a_completion(server: Server, alone: Duo) -> None:
    found = server.post("/v1/completions", {"prompt": PROMPT, **GREEDY, "logprobs": 1}).json()
    right = alone.create_completion(PROMPT, **GREEDY, logprobs=1)
    assert found["object"] == "text_completion" and found["id"].startswith("cmpl-")
    (mine,), (theirs,) = found["choices"], right["choices"]
    assert mine["text"] == theirs["text"] and mine["finish_reason"] == "length"
    assert mine["logprobs"]["tokens"] == theirs["logprobs"]["tokens"]
    assert mine["logprobs"]["text_offset"] == theirs["logprobs"]["text_offset"]
    assert found["usage"]["completion_tokens"] == 16
    events = server.events("/v1/completions", {"prompt": PROMPT, **GREEDY, "echo": True})
    assert events[-1][1] == "[DONE]" and events[-2][1]["usage"]["completion_tokens"] == 16
    assert "".join(e["choices"][0]["text"] for _, e in events[:-1]) == PROMPT + theirs["text"]


def test_several_prompts(server: Server, alone: Duo) -> None:
    prompts = [PROMPT, "The king said", "There was"]
    right = [alone.generate(p, **GREEDY).text for p in prompts]
    found = server.post("/v1/completions", {"prompt": prompts, **GREEDY}).json()
    assert [c["text"] for c in found["choices"]] == right
    ids = [alone.tokenize(p) for p in prompts]
    assert [c["content"] for c in server.post("/completion", {"prompt": ids, **GREEDY}).json()] == right
    mixed = server.post("/completion", {"prompt": [alone.tokenize(PROMPT)[0], PROMPT], **GREEDY}).json()
    assert mixed["content"] == right[0]


def test_llama_servers_completion(server: Server, alone: Duo) -> None:
    body = {"prompt": PROMPT, "n_predict": 16, "temperature": 0, "n_probs": 1, "return_tokens": True, "seed": 7}
    found = server.post("/completion", body).json()
    right = alone.generate(PROMPT, **GREEDY)
    assert found["content"] == right.text and found["tokens"] == list(right.tokens)
    assert found["stop"] is True and found["stop_type"] == "limit" and found["truncated"] is False
    assert found["tokens_predicted"] == 16 and found["tokens_evaluated"] == right.prompt_tokens
    assert found["generation_settings"]["seed"] == 7 and found["generation_settings"]["n_predict"] == 16
    assert [p["id"] for p in found["completion_probabilities"]] == found["tokens"]
    assert 0 <= found["id_slot"] < 4 and found["prompt"] == PROMPT and found["model"] == "demo"
    events = server.events("/completion", body)
    assert "".join(e["content"] for _, e in events) == right.text
    assert [t for _, e in events for t in e["tokens"]] == found["tokens"]
    assert [e["stop"] for _, e in events] == [False] * (len(events) - 1) + [True]
    picked = server.post("/completion", {**body, "response_fields": ["content", "generation_settings/seed"]}).json()
    assert picked == {"content": right.text, "seed": 7}


def test_stop_words(server: Server, alone: Duo) -> None:
    whole = alone.generate(PROMPT, **GREEDY).text
    word = whole.split()[3]
    found = server.post("/completion", {"prompt": PROMPT, **GREEDY, "stop": [word, "zzz"]}).json()
    assert found["content"] == whole[: whole.index(word)]
    assert (found["stop_type"], found["stopping_word"]) == ("word", word)
    assert server.post("/completion", {"prompt": PROMPT, **GREEDY, "stop": word}).json()["content"] == found["content"]


def test_only_reading_a_prompt(server: Server) -> None:
    prompt = "A long beginning. " * 20
    first = server.post("/completion", {"prompt": prompt, "n_predict": 0}).json()
    assert first["content"] == "" and first["tokens_predicted"] == 0
    body = {"prompt": prompt, "n_predict": 1, "temperature": 0}
    second = server.post("/completion", body).json()
    assert second["timings"]["cache_n"] > 50
    fresh = server.post("/completion", {**body, "cache_prompt": False}).json()
    assert fresh["timings"]["cache_n"] == 0 and fresh["content"] == second["content"]


def test_a_slot_may_be_chosen(server: Server) -> None:
    for i in (2, 0, 3):
        assert server.post("/completion", {"prompt": f"Slot {i}", "n_predict": 2, "id_slot": i}).json()["id_slot"] == i
    assert server.post("/completion", {"prompt": PROMPT, "id_slot": 4}).status_code == 400


@pytest.mark.parametrize(
    "more",
    [
        {"mode": "plain"},
        {"mode": "sync", "draft": {"n_max": 3}},
        {"draft": {"n_max": 0}},
        {"draft": {"n_max": 6, "n_min": 1, "p_min": 0.2}},
        {"speculative.n_max": 2},
        {"speculative.n_max": 0},
    ],
)
def test_the_text_does_not_depend_on_speculation(server: Server, alone: Duo, more: dict[str, Any]) -> None:
    found = server.post("/completion", {"prompt": PROMPT, **GREEDY, **more}).json()
    assert found["content"] == alone.generate(PROMPT, **GREEDY, mode="plain").text
    plain = more.get("mode") == "plain" or 0 in (more.get("draft", {}).get("n_max"), more.get("speculative.n_max"))
    if plain:
        assert "draft_n" not in found["timings"]
    elif "p_min" not in more.get("draft", {}):
        assert found["timings"]["draft_n"] > 0 and found["timings"]["draft_rounds"] > 0


def test_biases(server: Server, alone: Duo) -> None:
    king = alone.tokenize(" king", add_special=False)[0]
    never = alone.generate(PROMPT, **GREEDY).tokens[0]
    for bias in ([[king, 1000]], {str(king): 1000}, [[" king", 1000]]):
        found = server.post(
            "/completion", {"prompt": PROMPT, "n_predict": 1, "logit_bias": bias, "return_tokens": True}
        )
        assert found.json()["tokens"] == [king]
    body = {"prompt": PROMPT, "n_predict": 1, "logit_bias": [[never, False]], "return_tokens": True}
    assert server.post("/completion", {**body, "temperature": 0}).json()["tokens"] != [never]
    for bad in ([1], [[1, "x"]], [[True, 1]], [[10**6, 1]]):
        assert server.post("/completion", {"prompt": PROMPT, "logit_bias": bad}).status_code == 400


# ---- tokens


def test_tokens_and_back(server: Server, alone: Duo) -> None:
    ids = server.post("/tokenize", {"content": "Grün ☺"}).json()["tokens"]
    assert ids == alone.tokenize("Grün ☺", add_special=False)
    assert server.post("/detokenize", {"tokens": ids}).json() == {"content": "Grün ☺"}
    with_bos = server.post("/tokenize", {"content": "a", "add_special": True}).json()["tokens"]
    assert with_bos == alone.tokenize("a")
    pieces = server.post("/tokenize", {"content": "Grün ☺", "with_pieces": True}).json()["tokens"]
    data = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert data.decode() == "Grün ☺" and [p["id"] for p in pieces] == ids
    assert server.post("/tokenize", {}).json() == {"tokens": []}
    assert server.post("/detokenize", {"tokens": [10**6]}).status_code == 400
    n = server.post("/v1/chat/completions/input_tokens", {"messages": TALE}).json()["input_tokens"]
    assert (
        n == server.post("/v1/chat/completions", {"messages": TALE, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
    )


# ---- what the server says of itself


def test_health_models_props_and_slots(server: Server) -> None:
    assert server.get("/health").json() == server.get("/v1/health").json() == {"status": "ok"}
    assert server.get("/livez").status_code == 200
    models = server.get("/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == "demo"
    assert models["data"][0]["meta"]["n_ctx"] == server.duo.n_ctx() and models["models"][0]["name"] == "demo"
    assert server.get("/v1/models/demo").json()["id"] == "demo" and server.get("/v1/models/x").status_code == 404
    props = server.get("/props").json()
    assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] == server.duo.n_ctx()
    assert props["default_generation_settings"]["params"]["temperature"] == 0.8
    assert props["chat_template"] == TEMPLATE and props["chat_template_caps"]["supports_tools"] is True
    assert props["modalities"] == {"vision": False, "audio": False}
    server.wait_until_idle()
    assert [(s["id"], s["is_processing"]) for s in server.get("/slots").json()] == [(i, False) for i in range(4)]


def test_metrics(server: Server) -> None:
    def value(name: str) -> float:
        lines = server.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))

    server.wait_until_idle()
    before = [value(f"duo_{n}_total") for n in ("generated_tokens", "prompt_tokens_cached", "texts")]
    server.post("/completion", {"prompt": PROMPT, **GREEDY})
    server.post("/completion", {"prompt": PROMPT, **GREEDY})
    server.wait_until_idle()
    after = [value(f"duo_{n}_total") for n in ("generated_tokens", "prompt_tokens_cached", "texts")]
    assert after[0] - before[0] == 32 and after[1] > before[1] and after[2] - before[2] == 2
    assert value("duo_requests_running") == value("duo_requests_waiting") == 0 and value("duo_places") == 4
    # Texts that had no token have none of the first two.
    assert 2 <= value("duo_time_per_token_seconds_count") <= value("duo_time_to_first_token_seconds_count")
    assert value("duo_time_to_first_token_seconds_count") < value("duo_queue_seconds_count")
    assert value("llamacpp:tokens_predicted_total") == 0  # not asked for


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/rerank", "/lora-adapters", "/tools", "/v1/chat/completions/control", "/slots/0"]
)
def test_what_duo_does_not_have_is_refused_by_name(server: Server, path: str) -> None:
    answer = server.post(path, {})
    assert answer.status_code == 501 and answer.json()["error"]["type"] == "not_supported_error"
    assert path.rsplit("/", 1)[0] in answer.json()["error"]["message"]


# ---- mistakes


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": []}, "empty list"),
        ({"prompt": [None]}, "part 0"),
        ({"prompt": [-1]}, "part 0"),
        ({"prompt": "a", "n_predict": "5"}, "Field 'n_predict'"),
        ({"prompt": "a", "n_predict": True}, "Field 'n_predict'"),
        ({"prompt": "a", "temperature": []}, "Field 'temperature'"),
        ({"prompt": "a", "temperature": 1e308}, "temperature"),
        ({"prompt": "a", "seed": -5}, "seed"),
        ({"prompt": "a", "mode": "fast"}, "mode"),
        ({"prompt": "a", "mirostat": 2}, "mirostat"),
        ({"prompt": "a", "grammar": "root ="}, "grammar"),
        ({"prompt": "a", "json_schema": {"type": "thing"}}, "thing"),
        ({"prompt": "a", "draft": {"n_least": 3}}, "n_least"),
        ({"prompt": "a", "repeat_penalty": -1}, "repeat_penalty"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "multimodal_data"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": ["a"] * 2000}, "2000 prompts"),
        ({"prompt": ["a"] * 100}, "100 texts"),
    ],
)
def test_mistakes_are_told_in_a_sentence(server: Server, body: dict[str, Any], words: str) -> None:
    answer = server.post("/completion", body)
    error = answer.json()["error"]
    assert answer.status_code == error["code"] == 400 and error["type"] == "invalid_request_error"
    assert words in error["message"] and "Traceback" not in error["message"]


def test_a_prompt_that_does_not_fit(server: Server) -> None:
    answer = server.post("/completion", {"prompt": "word " * 3000, "stream": True})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] > error["n_ctx"] == server.duo.n_ctx()
    assert "exceeds the available context size" in error["message"]


def test_unknown_and_empty_fields_pass(server: Server, alone: Duo) -> None:
    nothing = dict.fromkeys(
        ["temperature", "stop", "grammar", "draft", "logit_bias", "n", "stream", "samplers", "model"]
    )
    more = {"store": True, "metadata": {"a": 1}, "samplers": ["top_k"], "n_keep": 4, "seed": 4294967295}
    found = server.post("/completion", {"prompt": PROMPT, **nothing, **GREEDY, **more}).json()
    assert found["content"] == alone.generate(PROMPT, **GREEDY).text
    empty = server.post("/completion", {"prompt": PROMPT, **GREEDY, "grammar": "", "stop": [""], "tools": []}).json()
    assert empty["content"] == found["content"]


@pytest.mark.parametrize("messages", [None, [], "hello", [{}], [{"role": "user", "content": 3}], [{"role": "user"}]])
def test_bad_conversations(server: Server, messages: Any) -> None:
    assert server.post("/v1/chat/completions", {"messages": messages}).status_code == 400
