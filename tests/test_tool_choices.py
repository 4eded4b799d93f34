"""Which tools an answer calls: choices of the caller, in the Python API."""

import json
from typing import Any

import jsonschema
import pytest
from weather_tools import CLOCK, FORMS, MESSAGES, NAMES, TOOLS, WEATHER

from duo import BadValueError, Duo, DuoError
from duo.compat.llama_cpp.tools import choice_of


def ask(d: Duo, **options: Any) -> Any:
    return d.create_chat_completion(MESSAGES, temperature=0, tools=TOOLS, max_tokens=120, **options)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "clock"}}], ids=str)
def test_a_choice_shapes_the_answer(duo_pair: Duo, choice: Any) -> None:
    a = ask(duo_pair, tool_choice=choice)["choices"][0]
    parts = [p["choices"][0] for p in ask(duo_pair, tool_choice=choice, stream=True)]
    (call,) = a["message"]["tool_calls"]
    assert (a["message"]["content"], a["finish_reason"]) == (None, "tool_calls")
    schema = next(t["function"]["parameters"] for t in TOOLS if t["function"]["name"] == call["function"]["name"])
    jsonschema.validate(json.loads(call["function"]["arguments"]), schema)
    assert parts[-1]["finish_reason"] == "tool_calls"
    streamed = [c for p in parts for c in p["delta"].get("tool_calls") or ()]
    assert "".join(c["function"]["arguments"] for c in streamed) == call["function"]["arguments"]
    assert {c["index"] for c in streamed} == {0}
    if choice == "required":  # in pieces; by name each part has all of it, as in llama_cpp
        names = [c["function"].get("name") for c in streamed]
        assert names == [call["function"]["name"], *[None] * (len(names) - 1)]
        assert len(streamed) > 3 and streamed[0]["id"] and streamed[0]["type"] == "function"
    else:
        assert {c["function"]["name"] for c in streamed} == {call["function"]["name"]}


def test_a_required_tool_is_one_of_several_and_its_references_hold(duo_pair: Duo) -> None:
    found = set()
    for seed in range(12):
        a = duo_pair.create_chat_completion(MESSAGES, tools=TOOLS, tool_choice="required", temperature=2, seed=seed,
                                            max_tokens=120, top_k=0, min_p=0, top_p=1)  # fmt: skip
        (call,) = a["choices"][0]["message"]["tool_calls"]
        found.add(call["function"]["name"])
        if call["function"]["name"] == "clock":
            assert json.loads(call["function"]["arguments"])["zone"] in ("utc", "cet")
    assert found == set(NAMES)


def test_calls_in_an_answer_are_parsed_and_reasoning_is_split_off(duo_pair: Duo) -> None:
    written = "<think>Hm.</think>" + FORMS["hermes"].replace("\n", "")
    grammar = "root ::= " + json.dumps(written)
    for options, message in (
        ({}, {"content": "<think>Hm.</think>"}),
        ({"reasoning_format": "auto"}, {"content": None, "reasoning_content": "Hm."}),
    ):
        a = ask(duo_pair, grammar=grammar, **options)
        (call,) = a["choices"][0]["message"].pop("tool_calls")
        assert a["choices"][0]["message"] == {"role": "assistant", **message}
        assert (call["type"], call["function"]) == ("function", {"name": "weather", "arguments": '{"city": "Rome"}'})
        assert (a["choices"][0]["finish_reason"], call["id"][:5]) == ("tool_calls", "call_")
        parts = list(ask(duo_pair, grammar=grammar, stream=True, **options))
        deltas = [p["choices"][0]["delta"] for p in parts]
        for name in ("content", "reasoning_content"):
            assert "".join(d.get(name) or "" for d in deltas) == (message.get(name) or "")
        pieces = [c for d in deltas for c in d.get("tool_calls") or ()]
        assert [(c["id"][:5], c["function"]["name"]) for c in pieces if "id" in c] == [("call_", "weather")]
        assert "".join(c["function"]["arguments"] for c in pieces) == call["function"]["arguments"]
        assert len(pieces) > 2 and {c["index"] for c in pieces} == {0}  # while it is written
        assert parts[-1]["choices"][0]["finish_reason"] == "tool_calls"
    plain = ask(duo_pair, grammar=grammar, tool_choice="none")["choices"][0]
    assert (plain["message"]["content"], plain["finish_reason"]) == (written, "stop")


def test_parameters_that_are_nested_too_deeply(duo_pair: Duo) -> None:
    schema: Any = {"type": "integer"}
    for _ in range(2000):
        schema = {"type": "array", "items": schema}
    tools = [{"type": "function", "function": {"name": "x", "parameters": schema}}]
    for choice in ("required", {"type": "function", "function": {"name": "x"}}):
        with pytest.raises(BadValueError):
            duo_pair.create_chat_completion(MESSAGES, tools=tools, tool_choice=choice)


@pytest.mark.parametrize("options,why", [
    ({"tool_choice": "maybe"}, "tool_choice is 'maybe'"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "names x, which is not in tools"),
    ({"tool_choice": "required", "tools": None}, "there are no tools"),
    ({"tools": [{"type": "function"}]}, "tool 0 has no function"),
    ({"tools": [{"type": "function", "function": {"name": "x", "parameters": "y"}}]}, "parameters of tool 0 are str"),
    ({"tools": [{"type": "function", "function": {"name": "x", "parameters": {"$defs": ["y"]}}}],
      "tool_choice": "required"}, r"the \$defs of tool 0 are \['y'\]"),
    ({"function_call": 3}, "function_call is 3"),
    ({"chat_template_kwargs": ["enable_thinking"]}, "variables of a chat template are a dict"),
    ({"chat_template_kwargs": {1: 2}}, "variables of a chat template are a dict"),
    ({"chat_template_kwargs": {"messages": []}}, "messages is no variable"),
    ({"response_format": "x" * 100_000}, r"^response_format is 'x{199}\.\.\.; its type"),
    ({"reasoning_format": "deepseek-legacy"}, "reasoning_format"),
], ids=str)  # fmt: skip
def test_bad_choices_are_refused(duo_pair: Duo, options: Any, why: str) -> None:
    with pytest.raises(DuoError, match=why):
        duo_pair.create_chat_completion(MESSAGES, **{"tools": TOOLS, **options})


def test_the_old_arguments_mean_the_same() -> None:
    new = choice_of(TOOLS, {"type": "function", "function": {"name": "clock"}}, None, None)
    assert choice_of(None, None, [WEATHER, CLOCK], {"name": "clock"}) == new
    assert choice_of(None, None, [WEATHER, CLOCK], "none").names == frozenset()
    assert new.schema == CLOCK["parameters"]


def test_of_two_tools_with_one_name_the_last_counts() -> None:
    twice = [*TOOLS, {"type": "function", "function": {**CLOCK, "parameters": WEATHER["parameters"]}}]
    choice = choice_of(twice, {"type": "function", "function": {"name": CLOCK["name"]}}, None, None)
    assert choice.schema == choice.schemas[CLOCK["name"]] == WEATHER["parameters"]
