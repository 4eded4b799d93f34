"""Programs that know OpenAI's or Anthropic's API, and every request that the description of the routes allows."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from late import Late
from pydantic import BaseModel, TypeAdapter
from served import CALLED, GREEDY, TALE, Server

from duo import Duo

pytestmark = pytest.mark.full

anthropic, openai = Late("anthropic"), Late("openai")


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=HANG_S, max_retries=0) as c:
        yield c


@pytest.fixture(scope="module")
def claude(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", timeout=HANG_S, max_retries=0) as c:
        yield c


@pytest.fixture(scope="module")
def right(alone: Duo) -> str:
    return str(alone.create_chat_completion(TALE, **GREEDY)["choices"][0]["message"]["content"])


# ---- openai


def test_openai(client: openai.OpenAI, right: str, alone: Duo) -> None:
    answer = client.chat.completions.create(model="demo", messages=TALE, **GREEDY)
    assert answer.choices[0].message.content == right and answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 16
    stream = client.chat.completions.create(
        model="demo", messages=TALE, **GREEDY, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == right
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 16
    text = client.completions.create(model="demo", prompt="Once upon a time", **GREEDY)
    assert text.choices[0].text == alone.generate("Once upon a time", **GREEDY).text
    assert [m.id for m in client.models.list()] == ["demo"]
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="demo", messages=TALE, temperature=1e300)
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model="demo", input="x")
    assert refused.value.status_code == 501


def test_openai_in_an_event_loop(server: Server, right: str) -> None:
    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", timeout=HANG_S) as client:

            async def one() -> str:
                stream = await client.chat.completions.create(model="demo", messages=TALE, **GREEDY, stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            return await asyncio.gather(*(one() for _ in range(12)))

    assert asyncio.run(main()) == [right] * 12


def test_openai_tools(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "demo", "messages": TALE, "tools": [CALLED], "tool_choice": "required", "seed": 1}
    message = client.chat.completions.create(**asked).choices[0].message
    assert message.tool_calls is not None
    called = json.loads(message.tool_calls[0].function.arguments)
    assert isinstance(called["sides"], int)
    with client.chat.completions.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0].message
    assert kinds.count("tool_calls.function.arguments.delta") > 2
    assert json.loads(final.tool_calls[0].function.arguments) == called
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "4"}
    told = [*TALE, message.model_dump(exclude_none=True), result]
    assert client.chat.completions.create(**{**asked, "messages": told, "tool_choice": "auto"}, max_tokens=4).choices


# What https://www.openresponses.org wants of every answer.
FIELDS_OF_RESPONSES = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip


class Animal(BaseModel):
    legs: int
    tame: bool


def test_openai_structured_output(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(model="demo", messages=TALE, response_format=Animal, seed=1, max_tokens=60)
    assert isinstance(parsed.choices[0].message.parsed, Animal)


def test_openai_responses(client: openai.OpenAI, right: str) -> None:
    asked: dict[str, Any] = {"model": "demo", "temperature": 0, "max_output_tokens": 16}
    answer = client.responses.create(input="Tell me a tale.", **asked)
    assert answer.output_text == right and answer.status == "incomplete"
    assert answer.usage is not None and answer.usage.output_tokens == 16
    with client.responses.stream(input=[{"role": "user", "content": "Tell me a tale."}], **asked) as stream:
        events = list(stream)
    kinds = [e.type for e in events]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-1] == "response.incomplete"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == right
    assert [e.sequence_number for e in events] == list(range(len(events)))
    tool = {"type": "function", **CALLED["function"], "strict": True}
    called = client.responses.create(model="demo", input="Roll.", tools=[tool], tool_choice="required")
    with pytest.raises(openai.BadRequestError, match="tool 1 is of type 'web_search'"):
        client.responses.create(model="demo", input="Roll.", tools=[tool, {"type": "web_search"}])
    (call,) = [x for x in called.output if x.type == "function_call"]
    told = ["Roll.", call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "4"}]
    items = [{"role": "user", "content": told[0]}, *told[1:]]
    assert client.responses.create(input=items, instructions="Be brief.", **asked).output_text
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(input="And?", previous_response_id="resp_1", **asked)
    text = {"format": {"type": "json_schema", "name": "a", "schema": Animal.model_json_schema()}}
    shaped = client.responses.create(model="demo", input="Describe.", text=text, max_output_tokens=60)
    assert Animal.model_validate_json(shaped.output_text)


def test_fields_that_the_published_schemas_require_although_they_may_be_null(server: Server) -> None:
    told = server.post("/v1/messages", {"messages": TALE, "max_tokens": 4, "temperature": 0}).json()
    assert told["content"][0] == {"type": "text", "text": told["content"][0]["text"], "citations": None}
    assert {"stop_sequence", "stop_details", "container"} < told.keys()
    assert {"cache_creation", "inference_geo", "output_tokens_details", "server_tool_use", "service_tier"} < told[
        "usage"
    ].keys()
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    asked = {"input": "Once", "max_output_tokens": 4, "tools": [tool], "tool_choice": "none"}
    answer = server.post("/v1/responses", asked).json()
    assert answer["tools"] == [{**tool, "description": None, "strict": None}]


@pytest.mark.parametrize(
    "more", [{}, {"tools": [CALLED["function"] | {"type": "function"}], "tool_choice": "required"}]
)
@pytest.mark.parametrize("n", [5, 200])
def test_responses_have_the_fields_of_openais_schema(server: Server, n: int, more: dict[str, Any]) -> None:
    """The client itself checks no types, but its types are the schema."""
    from openai.types.responses import Response, ResponseStreamEvent

    stops = ["."] if n == 200 and not more else []
    body = {"input": "Tell me a tale.", "temperature": 0, "max_output_tokens": n, "stop": stops, "user": "me",
            "metadata": {"a": "b"}, "top_p": 0.9, "presence_penalty": 0.5, **more}  # fmt: skip
    answers = [server.post("/v1/responses", body).json()]
    of_events: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for kind, data in server.events("/v1/responses", body):
        assert of_events.validate_python(data).type == kind
        answers += [data["response"]] if "response" in data else []
    assert [a["status"] for a in answers[1:3]] == ["in_progress", "in_progress"] and len(answers) == 4
    for a in answers:
        Response.model_validate(a)
        assert a.keys() >= FIELDS_OF_RESPONSES
        assert (a["previous_response_id"], a["truncation"], a["store"]) == (None, "disabled", False)
        assert a["text"] == {"format": {"type": "text"}} and a["metadata"] == {"a": "b"} and a["user"] == "me"
        assert (a["top_p"], a["presence_penalty"], a["max_output_tokens"]) == (0.9, 0.5, n)
    for a in (answers[0], answers[-1]):
        assert a["status"] == ("incomplete" if n == 5 else "completed")
        assert a["output"][-1]["status"] == a["status"]
        done = a["completed_at"]
        assert done is None if n == 5 else a["created_at"] <= done


@pytest.mark.daily
def test_langchain(server: Server, right: str) -> None:
    from langchain_openai import ChatOpenAI

    at: dict[str, Any] = {"base_url": server.url + "/v1", "api_key": "none", "model": "demo"}
    with httpx.Client(timeout=HANG_S) as connections:
        model: Any = ChatOpenAI(**at, temperature=0, max_tokens=16, http_client=connections)
        assert model.invoke("Tell me a tale.").content == right
        assert "".join(str(c.content) for c in model.stream("Tell me a tale.")) == right
        (call,) = model.bind_tools([CALLED], tool_choice="roll").bind(max_tokens=100).invoke("Roll.").tool_calls
        assert call["name"] == "roll" and isinstance(call["args"]["sides"], int)
        shaped = ChatOpenAI(**at, seed=1, max_tokens=60, http_client=connections)
        assert isinstance(shaped.with_structured_output(Animal).invoke("Describe one."), Animal)


# ---- anthropic


@pytest.mark.daily  # test_answers_both_ways, test_serve_chat and others ask /v1/messages
def test_anthropic(claude: anthropic.Anthropic, right: str, server: Server) -> None:
    greedy = {"temperature": 0}
    asked: dict[str, Any] = {"model": "demo", "messages": TALE, "max_tokens": 16, "extra_body": greedy}
    answer = claude.messages.create(**asked)
    assert answer.content[0].text == right and answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 16
    counted = claude.messages.count_tokens(model="demo", messages=TALE)
    assert counted.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == right
        final = stream.get_final_message()
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 16
    names = [name for name, _ in server.events("/v1/messages", {"messages": TALE, **GREEDY})]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    word = right.split()[2]
    stopped = claude.messages.create(**asked, stop_sequences=[word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    assert stopped.content[0].text == right[: right.index(word)]
    briefly = claude.messages.count_tokens(model="demo", messages=TALE, system=[{"type": "text", "text": "Be brief."}])
    assert briefly.input_tokens > counted.input_tokens
    shape = {"format": {"type": "json_schema", "schema": Animal.model_json_schema()}}
    shaped = claude.messages.create(model="demo", messages=TALE, max_tokens=60, output_config=shape)
    assert Animal.model_validate_json(shaped.content[0].text)
    with pytest.raises(anthropic.BadRequestError, match="a picture has no URL"):
        claude.messages.create(**{**asked, "messages": [{"role": "user", "content": [{"type": "image"}]}]})


@pytest.mark.daily
def test_anthropic_tools(claude: anthropic.Anthropic) -> None:
    tool = {"name": "roll", "description": "Rolls.", "input_schema": CALLED["function"]["parameters"]}
    asked: dict[str, Any] = {"model": "demo", "messages": TALE, "max_tokens": 100, "tools": [tool]}
    for choice in ({"type": "any"}, {"type": "tool", "name": "roll"}):
        with claude.messages.stream(**asked, tool_choice=choice) as stream:
            pieces = [e.partial_json for e in stream if e.type == "input_json"]
            final = stream.get_final_message()
        assert final.stop_reason == "tool_use" and len(pieces) > 2
        (call,) = final.content
        assert call.type == "tool_use" and isinstance(call.input["sides"], int)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "4"}]}
    told = [*TALE, {"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    assert claude.messages.create(**{**asked, "messages": told, "max_tokens": 4}).content


@pytest.mark.daily
def test_anthropic_thoughts(claude: anthropic.Anthropic, server: Server) -> None:
    body = {"messages": TALE, "max_tokens": 12, "chat_template_kwargs": {"enable_thinking": True}}
    found = server.post("/v1/messages", body).json()["content"]
    assert found[0]["type"] == "thinking" and found[0]["thinking"]
    events = server.events("/v1/messages", {**body, "seed": 1})
    deltas = [e["delta"]["type"] for name, e in events if name == "content_block_delta"]
    assert deltas[0] == "thinking_delta" and deltas[-1] == "signature_delta"


# ---- the same texts as without a server


def asked_for(n: int) -> list[tuple[str, dict[str, Any]]]:
    dice = random.Random(13)
    words = ["Once upon a time", "The king said", "There was a little girl who", "In the forest", "The old man"]
    found = []
    for i in range(n):
        o: dict[str, Any] = {"max_tokens": dice.choice([5, 20, 60]), "seed": i}
        o["temperature"] = dice.choice([0, 0, 0.8, 1.1])
        if dice.random() < 0.2:
            o["stop"] = [".", " the "]
        if dice.random() < 0.1:
            o["json_schema"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}
        prompt = " ".join(dice.choices(words, k=30)) if dice.random() < 0.2 else dice.choice(words)
        found.append((prompt, o))
    return found


@pytest.mark.parametrize("n", [12, pytest.param(200, marks=pytest.mark.proof)])
def test_texts_are_those_of_plain_decoding(server: Server, alone: Duo, n: int) -> None:
    asked = asked_for(n)
    want = [alone.generate(p, **o, mode="plain").text for p, o in asked]
    dice = random.Random(n)

    def ask(i: int) -> str:
        prompt, o = asked[i]
        body = {"prompt": prompt, **o, "mode": ["async", "sync", "plain"][i % 3]}
        if i % 2:
            return "".join(e["content"] for _, e in server.events("/completion", body))
        return str(server.post("/completion", body).json()["content"])

    order = dice.sample(range(n), n)
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(order, pool.map(ask, order), strict=True))
    wrong = [i for i in order if found[i] != want[i]]
    assert not wrong, [(asked[i], found[i], want[i]) for i in wrong[:2]]
