"""Clients in an event loop, streams of calls, and LiteLLM, which needs an environment of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from conftest import HANG_S, run_python
from deployed import python_with
from late import Late
from pydantic import BaseModel
from served import CALLED, GREEDY, TALE, Server

from duo import Duo

pytestmark = pytest.mark.full

anthropic, openai = Late("anthropic"), Late("openai")
TOOL = {"name": "roll", "description": "Rolls.", "input_schema": CALLED["function"]["parameters"]}


class Animal(BaseModel):
    legs: int
    tame: bool


@pytest.mark.daily  # test_serve_clients has it without a loop
def test_openai_structured_output_in_an_event_loop(server: Server) -> None:
    async def main() -> list[Animal | None]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", timeout=HANG_S) as client:

            async def whole(seed: int) -> Animal | None:
                answer = await client.chat.completions.parse(
                    model="demo", messages=TALE, response_format=Animal, seed=seed, max_tokens=60
                )
                return answer.choices[0].message.parsed

            async def streamed(seed: int) -> Animal | None:
                asked: dict[str, Any] = {"model": "demo", "messages": TALE, "seed": seed, "max_tokens": 60}
                async with client.chat.completions.stream(**asked, response_format=Animal) as stream:
                    n_pieces = len([e async for e in stream if e.type == "content.delta"])
                    final = await stream.get_final_completion()
                assert n_pieces > 2
                return final.choices[0].message.parsed

            return await asyncio.gather(*(f(seed) for seed in range(4) for f in (whole, streamed)))

    found = asyncio.run(main())
    assert all(isinstance(x, Animal) for x in found)
    assert found[::2] == found[1::2]  # a stream brings what an answer in one piece does


@pytest.mark.daily  # test_serve_clients streams calls, and has a loop
def test_openai_streams_calls_in_an_event_loop(server: Server) -> None:
    async def main() -> list[tuple[int, Any, Any]]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", timeout=HANG_S) as client:

            async def one(seed: int) -> tuple[int, Any, Any]:
                asked: dict[str, Any] = {"model": "demo", "messages": TALE, "tools": [CALLED], "seed": seed}
                pieces, final = 0, None
                async with client.chat.completions.stream(**asked, tool_choice="required") as stream:
                    async for event in stream:
                        pieces += event.type == "tool_calls.function.arguments.delta"
                    final = (await stream.get_final_completion()).choices[0]
                whole = await client.chat.completions.create(**asked, tool_choice="required")
                assert final.finish_reason == whole.choices[0].finish_reason == "tool_calls"
                calls = [c.message.tool_calls[0].function.arguments for c in (final, whole.choices[0])]
                return pieces, json.loads(calls[0]), json.loads(calls[1])

            return await asyncio.gather(*(one(seed) for seed in range(6)))

    for n_pieces, streamed, whole in asyncio.run(main()):
        assert n_pieces > 2 and streamed == whole and isinstance(whole["sides"], int)


@pytest.mark.daily
def test_anthropic_streams_calls_in_an_event_loop(server: Server) -> None:
    async def main() -> None:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", timeout=HANG_S) as client:

            async def one(seed: int) -> None:
                asked: dict[str, Any] = {"model": "demo", "messages": TALE, "max_tokens": 200, "tools": [TOOL],
                                         "tool_choice": {"type": "any"}, "extra_body": {"seed": seed}}  # fmt: skip
                async with client.messages.stream(**asked) as stream:
                    kinds = [e.type async for e in stream]
                    final = await stream.get_final_message()
                (call,) = final.content
                assert final.stop_reason == "tool_use" and isinstance(call.input["sides"], int)
                assert kinds.count("input_json") > 2 and kinds[0] == "message_start" and kinds[-1] == "message_stop"
                whole = await client.messages.create(**asked)
                assert whole.content[0].input == call.input

            await asyncio.gather(*(one(seed) for seed in range(4)))

    asyncio.run(main())


@pytest.mark.daily
def test_langchain_streams_calls(server: Server, alone: Duo) -> None:
    from langchain_openai import ChatOpenAI

    right = alone.create_chat_completion(TALE, **GREEDY)["choices"][0]["message"]["content"]
    at: dict[str, Any] = {"base_url": server.url + "/v1", "api_key": "none", "model": "demo"}

    async def main() -> list[str]:
        async with httpx.AsyncClient(timeout=HANG_S) as connections:
            model: Any = ChatOpenAI(**at, temperature=0, max_tokens=16, http_async_client=connections)
            return [str(c.content) async for c in model.astream("Tell me a tale.")]

    assert "".join(asyncio.run(main())) == right
    with httpx.Client(timeout=HANG_S) as connections:
        caller: Any = ChatOpenAI(**at, temperature=0, http_client=connections)
        whole = None
        for chunk in caller.bind_tools([CALLED], tool_choice="roll").bind(max_tokens=100).stream("Roll."):
            whole = chunk if whole is None else whole + chunk
    assert whole is not None
    (call,) = whole.tool_calls
    assert call["name"] == "roll" and isinstance(call["args"]["sides"], int)


# Its base is the address of the server.
LITELLM = """
import asyncio, json, sys
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks no other host
import litellm

base, called = sys.argv[1], json.loads(sys.argv[2])
tale = [{"role": "user", "content": "Tell me a tale."}]
asked = {"model": "openai/demo", "messages": tale, "api_base": base + "/v1", "api_key": "none", "temperature": 0}
whole = litellm.completion(**asked, max_tokens=16)
chunks = list(litellm.completion(**asked, max_tokens=16, stream=True))
call = litellm.completion(**asked, tools=[called], tool_choice="required").choices[0].message.tool_calls[0]
pieces = list(litellm.completion(**asked, tools=[called], tool_choice="required", stream=True))
built = litellm.stream_chunk_builder(pieces).choices[0].message.tool_calls[0]


async def many():
    return await asyncio.gather(*(litellm.acompletion(**asked, max_tokens=16) for _ in range(6)))


try:
    litellm.completion(**{**asked, "temperature": 1e300})
    refused = None
except litellm.BadRequestError as e:
    refused = str(e)
theirs = litellm.completion(model="anthropic/demo", messages=tale, api_base=base, api_key="none", max_tokens=16,
                            temperature=0)
print(json.dumps({
    "whole": whole.choices[0].message.content,
    "n": whole.usage.completion_tokens,
    "streamed": "".join(c.choices[0].delta.content or "" for c in chunks),
    "many": [a.choices[0].message.content for a in asyncio.run(many())],
    "call": [call.function.name, json.loads(call.function.arguments)],
    "built": [built.function.name, json.loads(built.function.arguments)],
    "n_pieces": len(pieces),
    "refused": refused,
    "anthropic": theirs.choices[0].message.content,
}))
"""


@pytest.mark.slow
@pytest.mark.daily  # it speaks as openai's and anthropic's clients do, and takes ten seconds to start
def test_litellm(server: Server, alone: Duo) -> None:
    right = alone.create_chat_completion(TALE, **GREEDY)["choices"][0]["message"]["content"]
    done = run_python(LITELLM, server.url, json.dumps(CALLED), python=python_with("litellm", "DUO_TEST_LITELLM"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["whole"] == found["streamed"] == found["anthropic"] == right and found["n"] == 16
    assert found["many"] == [right] * 6
    assert found["call"] == found["built"] and found["call"][0] == "roll" and found["n_pieces"] > 3
    assert "temperature" in found["refused"]
