"""Tools: who may be called, what a model's calls look like, and what becomes of them."""

import json
import random
from typing import Any

import jsonschema
import pytest

from duo import Duo, DuoError
from duo.api.tools import choice_of
from duo.prompt.reading import Part, Reader, joined
from duo.prompt.tool_calls import Call, split_calls

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}
ZONE = {
    "type": "object",
    "properties": {"zone": {"$ref": "#/$defs/zone"}},
    "required": ["zone"],
    "$defs": {"zone": {"enum": ["utc", "cet"]}},
}
WEATHER, CLOCK = {"name": "weather", "parameters": CITY}, {"name": "clock", "parameters": ZONE}
TOOLS = [{"type": "function", "function": f} for f in (WEATHER, CLOCK)]
MESSAGES = [{"role": "user", "content": "Tell me the tale of the frog."}]
ROME = Call("weather", '{"city": "Rome"}')
FORMS = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    "hermes, cut off": '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}',
    "llama 3": '{"name": "weather", "parameters": {"city": "Rome"}}',
    "llama 3, tag": '<|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "Rome"}}',
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]',
    "mistral, new": '[TOOL_CALLS]weather[ARGS]{"city": "Rome"}',
    "functionary": '<function=weather>{"city": "Rome"}</function>',
    "functionary, new": '>>>weather\n{"city": "Rome"}',
    "openai": '[{"function": {"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}}]',
}
NAMES = ("weather", "clock")


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("before", ["", "I shall look.\n"])
def test_calls_are_read_in_every_form(text: str, before: str) -> None:
    if before and text[0] in "{[" and not text.startswith("[TOOL"):
        assert split_calls(before + text, NAMES) == (before + text, [])
        return
    assert split_calls(before + text, NAMES) == (before.strip(), [ROME])


def test_several_calls() -> None:
    both = [ROME, Call("clock", '{"zone": "utc"}')]
    one, two = ({"name": c.name, "arguments": json.loads(c.arguments)} for c in both)
    a, b = json.dumps(one), json.dumps(two)
    for text in (f"<tool_call>{a}</tool_call>\n<tool_call>{b}</tool_call>", f"{a}; {b}", f"[TOOL_CALLS][{a}, {b}]",
                 f"<function=weather>{both[0].arguments}</function><function=clock>{both[1].arguments}</function>",
                 f"[TOOL_CALLS]weather[ARGS]{both[0].arguments}[TOOL_CALLS]clock{both[1].arguments}"):  # fmt: skip
        assert split_calls(text, NAMES) == ("", both)
    with_id = '[TOOL_CALLS][{"name": "weather", "arguments": {}, "id": "a1b2c3d4e"}]'
    assert split_calls(with_id, NAMES)[1] == [Call("weather", "{}", "a1b2c3d4e")]


@pytest.mark.parametrize("text", [
    '{"name": "other", "arguments": {}}', '{"name": "weather", "arguments": 3}', "<tool_call>no</tool_call>", "{",
    "[1]",
    '<tool_call>{"name": "weather"', "[TOOL_CALLS]", ">>>all\nHi", "a <function=other>{}</function>",
    '<tool_call>{"name": "weather", "arguments": {}}</tool_call> and more', "[" * 100_000,
])  # fmt: skip
def test_what_is_no_call_stays_text(text: str) -> None:
    assert split_calls(text, NAMES) == (text, [])


def merged(parts: list[Part]) -> tuple[str, str, list[Call]]:
    p = joined(parts)
    return p.reasoning, p.content, list(p.calls)


HARMONY = (
    '<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>commentary to=functions.weather '
    '<|constrain|>json<|message|>{"city": "Rome"}'
)  # fmt: skip
ANSWERS: list[tuple[str, str, tuple[str, str, list[Call]]]] = [
    ("", "<think>\nHm. 1 < 2.\n</think>\n\nHi.", ("Hm. 1 < 2.", "Hi.", [])),
    ("<think>\n", "Hm.\n</think>\n\nHi.", ("Hm.", "Hi.", [])),
    ("", "[THINK]Hm.[/THINK]Hi.", ("Hm.", "Hi.", [])),
    ("", "<think>Hm.", ("Hm.", "", [])),
    ("", "Hi <think>.", ("", "Hi <think>.", [])),
    ("", "<think>Hm.</think>" + FORMS["hermes"], ("Hm.", "", [ROME])),
    ("", "<think>Hm.</think>Look: " + FORMS["hermes"], ("Hm.", "Look:", [ROME])),
    ("", HARMONY, ("They ask.", "", [ROME])),
    ("", HARMONY.split("<|start|>")[0] + "<|start|>assistant<|channel|>final<|message|>Hi.", ("They ask.", "Hi.", [])),
    ("", "", ("", "", [])),
    ("", "{not JSON}", ("", "{not JSON}", [])),
    ("", "a <b", ("", "a <b", [])),
]


@pytest.mark.parametrize("prompt,text,wanted", ANSWERS)
def test_an_answer_is_read_the_same_in_any_pieces(prompt: str, text: str, wanted: Any) -> None:
    for seed in range(40):
        r, reader = random.Random(seed), Reader(prompt, reasoning=True, names=NAMES)
        parts, at = [], 0
        while at < len(text):
            n = len(text) if seed == 0 else r.randint(1, 1 if seed == 1 else 7)
            parts += reader.feed(text[at : at + n])
            at += n
        assert merged(parts + reader.finish()) == wanted


def test_text_is_given_out_while_it_comes() -> None:
    reader = Reader("", reasoning=True, names=NAMES)
    assert reader.feed("Hello, the") == [Part(content="Hello, the")]
    assert reader.feed(" king <to") == [Part(content=" king")]
    assert reader.feed("ken> ") == [Part(content=" <token>")]
    thinking = Reader("<think>", reasoning=True)
    assert thinking.feed("Let me") == [Part(reasoning="Let me")]
    assert Reader("", reasoning=False).feed("<think>Hm.</think>Hi.") == [Part(content="<think>Hm.</think>Hi.")]


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
    assert {(c["index"], c["function"]["name"]) for c in streamed} == {(0, call["function"]["name"])}


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
        assert [c["function"] for d in deltas for c in d.get("tool_calls") or ()] == [call["function"]]
    plain = ask(duo_pair, grammar=grammar, tool_choice="none")["choices"][0]
    assert (plain["message"]["content"], plain["finish_reason"]) == (written, "stop")


@pytest.mark.parametrize("options,why", [
    ({"tool_choice": "maybe"}, "tool_choice is 'maybe'"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "names x, which is not in tools"),
    ({"tool_choice": "required", "tools": None}, "there are no tools"),
    ({"tools": [{"type": "function"}]}, "tool 0 has no function"),
    ({"function_call": 3}, "function_call is 3"),
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
