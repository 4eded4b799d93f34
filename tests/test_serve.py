"""`duo serve`: completions, llama-server's and OpenAI's, and what the server says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from served import GREEDY, PROMPT, TALE, TEMPLATE, Server

from duo import Duo
from duo.server.recent_median import RecentMedian

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
    assert 0 <= found["id_slot"] < 4 and found["prompt"] == f"<|begin_of_text|>{PROMPT}" and found["model"] == "demo"
    events = server.events("/completion", body)
    assert "".join(e["content"] for _, e in events) == right.text
    assert [t for _, e in events for t in e["tokens"]] == found["tokens"]
    assert [e["stop"] for _, e in events] == [False] * (len(events) - 1) + [True]
    fields = ["content", "generation_settings/seed", "generation_settings/dry_base"]
    picked = server.post("/completion", {**body, "dry_base": 0.5, "response_fields": fields}).json()
    assert picked == dict(zip(fields, (right.text, 7, 1.75), strict=True))  # dry_base below 1: the server's


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
    elif more.get("mode") == "sync":  # in async mode the target does not wait for guesses that are late
        assert found["timings"]["draft_n"] > 0 and found["timings"]["draft_rounds"] > 0


def test_biases(server: Server, alone: Duo) -> None:
    king = alone.tokenize(" king", add_bos=False)[0]
    never = alone.generate(PROMPT, **GREEDY).tokens[0]
    for bias in ([[king, 1000]], {str(king): 1000}, [[" king", 1000]]):
        found = server.post(
            "/completion", {"prompt": PROMPT, "n_predict": 1, "logit_bias": bias, "return_tokens": True}
        )
        assert found.json()["tokens"] == [king]
    body = {"prompt": PROMPT, "n_predict": 1, "logit_bias": [[never, False]], "return_tokens": True}
    assert server.post("/completion", {**body, "temperature": 0}).json()["tokens"] != [never]
    odd = {"--5": 1, "9" * 5000: 1}  # texts that look like numbers
    assert server.post("/completion", {"prompt": PROMPT, "n_predict": 1, "logit_bias": odd}).status_code == 200
    for bad in ([1], [[1, "x"]], [{"token": 1}], [{"token": 1, "bias": "x"}], [[True, 1]], [[10**6, 1]]):
        assert server.post("/completion", {"prompt": PROMPT, "logit_bias": bad}).status_code == 400
    body |= {"ignore_eos": True, "logit_bias": [[king, 2.5], [never, False]]}
    ends = [alone.token_eos(), alone.tokenize("<|im_end|>", add_bos=False, special=True)[0]]
    shown = server.post("/completion", body).json()["generation_settings"]["logit_bias"]
    assert shown == [{"token": king, "bias": 2.5}, *({"token": i, "bias": None} for i in (never, *sorted(ends)))]
    again = server.post("/completion", {**body, "ignore_eos": False, "logit_bias": shown}).json()
    assert again["generation_settings"]["logit_bias"] == shown  # they can be sent back
    plain = server.post("/completion", {**body, "ignore_eos": False, "logit_bias": []}).json()
    assert plain["generation_settings"]["logit_bias"] == []


@pytest.mark.parametrize("n", [100_000, 101, -1])
def test_too_many_alternatives_are_refused_by_their_number(server: Server, n: int) -> None:
    answer = server.post("/completion", {"prompt": PROMPT, **GREEDY, "n_probs": n})
    assert answer.status_code == 400 and f"n_probs is {n}; give 0 to 100" in answer.json()["error"]["message"]


# ---- tokens


def test_tokens_and_back(server: Server, alone: Duo) -> None:
    ids = server.post("/tokenize", {"content": "Grün ☺"}).json()["tokens"]
    assert ids == alone.tokenize("Grün ☺", add_bos=False)
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
    assert props["default_generation_settings"]["params"]["samplers"][-1] == "temperature"
    assert props["chat_template"] == TEMPLATE and props["chat_template_caps"]["supports_tools"] is True
    assert props["modalities"] == {"vision": False, "audio": False}
    server.wait_until_idle()
    assert [(s["id"], s["is_processing"]) for s in server.get("/slots").json()] == [(i, False) for i in range(4)]


def test_metrics(server: Server) -> None:
    def value(name: str) -> float:
        lines = server.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))

    server.post("/completion", {"prompt": PROMPT, "n_predict": 0})  # a text without a token
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


@pytest.mark.parametrize("path", ["/models/load", "/tools", "/v1/chat/completions/control"])
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
        ({"prompt": "a", "mirostat": 3}, "mirostat"),
        ({"prompt": "a", "samplers": ["zzz"]}, "no sampler 'zzz'"),
        ({"prompt": "a", "samplers": ["temperature", "top_q"]}, "top_q"),
        ({"prompt": "a", "grammar": "root ="}, "grammar"),
        ({"prompt": "a", "json_schema": {"type": "thing"}}, "thing"),
        ({"prompt": "a", "draft": {"n_least": 3}}, "n_least"),
        ({"prompt": "a", "repeat_penalty": -1}, "repeat_penalty"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "picture's data is not base64"),
        ({"prompt": {"a": 1}}, "the prompt is {'a': 1}, without a prompt_string"),
        ({"prompt": {"prompt_string": 5}}, "the prompt is {'prompt_string': 5}, whose prompt_string is no text"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": ["a"] * 2000}, "2000 prompts"),
        ({"prompt": ["a"] * 105}, "105 texts"),
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
    more = {"store": True, "metadata": {"a": 1}, "samplers": ["temperature"], "n_keep": 4, "seed": 4294967295}
    found = server.post("/completion", {"prompt": PROMPT, **nothing, **GREEDY, **more}).json()
    assert found["content"] == alone.generate(PROMPT, **GREEDY).text
    empty = server.post("/completion", {"prompt": PROMPT, **GREEDY, "grammar": "", "stop": [""], "tools": []}).json()
    assert empty["content"] == found["content"]


def test_the_pass_that_plain_decoding_would_take_is_a_median() -> None:
    found = RecentMedian(3)
    assert found.value is None
    for ms, middle in ((10.0, 10.0), (90.0, 50.0), (11.0, 11.0), (12.0, 12.0), (12.5, 12.0)):
        found.add(ms)
        assert found.value == middle


def test_answers_tell_the_pass_that_plain_decoding_would_take(server: Server) -> None:
    body = {"prompt": PROMPT, "n_predict": 8, "mode": "plain"}
    found = [server.post("/completion", body).json()["timings"]["plain_pass_ms"] for _ in range(2)]
    assert found[0] > 0 and found[1] == server.service.plain_pass_ms.value
