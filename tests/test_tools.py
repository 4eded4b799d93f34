"""Tools: who may be called, what a model's calls look like, and what becomes of them."""

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weather_tools import FORMS, NAMES, ROME, split_calls

from duo.chat.reading import AnswerReader, Part, joined
from duo.chat.tool_calls import CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, MARKS, SEP, Call


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
                 f"[TOOL_CALLS]weather[ARGS]{both[0].arguments}[TOOL_CALLS]clock{both[1].arguments}",
                 "<tool_call><function=weather><parameter=city>Rome</parameter></function></tool_call>\n<tool_call>"
                 "<function=clock><parameter=zone>utc</parameter></function></tool_call>",
                 f"{CALLS_BEGIN}{CALL_BEGIN}weather{SEP}{both[0].arguments}{CALL_END}\n{CALL_BEGIN}clock{SEP}"
                 f"{both[1].arguments}{CALL_END}{CALLS_END}"):  # fmt: skip
        assert split_calls(text, NAMES) == ("", both)
    with_id = '[TOOL_CALLS][{"name": "weather", "arguments": {}, "id": "a1b2c3d4e"}]'
    assert split_calls(with_id, NAMES)[1] == [Call("weather", "{}", "a1b2c3d4e")]
    assert split_calls("[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{}", NAMES)[1] == [
        Call("weather", "{}", "a1b2c3d4e")
    ]
    action = '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "weather", "parameters": {}}]<|END_ACTION|>'
    assert split_calls(action, NAMES)[1] == [Call("weather", "{}", "0")]


@pytest.mark.parametrize("mark", [
    "<tool_call>", "<function=", "<function=weather>x", "<function=weather><parameter=city>", ">>>weather (",
    "functools[", "[TOOL_CALLS]a{", CALL_BEGIN, f"{CALL_BEGIN}function{SEP}weather\n```json\n",
])  # fmt: skip
def test_a_mark_that_a_model_repeats_to_the_end_of_its_context(mark: str) -> None:
    """Each was tried on all that follows, which took minutes."""
    text = (mark * 5000).rstrip()
    assert split_calls(text, NAMES) == (text, [])
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    assert split_calls(f"{text}\n{call}", NAMES) == (text, [ROME])


def test_a_parameter_has_the_type_that_its_schema_says() -> None:
    kinds = {"s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}, "o": {"type": "object"},
             "a": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "m": {"type": ["string", "null"]}}  # fmt: skip
    values = {"s": "12", "n": "12", "b": "True", "o": '{"x": [1]}', "a": "null", "m": "12", "unknown": "12"}
    text = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    (call,) = split_calls(f"<function=f>\n{text}</function>", {"f": {"properties": kinds}})[1]
    found = {"s": "12", "n": 12, "b": True, "o": {"x": [1]}, "a": None, "m": "12", "unknown": "12"}
    assert json.loads(call.arguments) == found
    code = 'def f():\n    print("\u683c")\n\nf()'
    text = f"<tool_call>\n<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>\n</tool_call>"
    assert split_calls(text, ["python"]) == ("", [Call("python", json.dumps({"code": code}, ensure_ascii=False))])
    assert split_calls("<function=f>\n</function>", ["f"])[1] == [Call("f", "{}")]
    bad = "<function=f>\n<parameter=a>\n1</function>"
    assert split_calls(bad, ["f"]) == (bad, [])


@pytest.mark.parametrize("text", [
    '{"name": "other", "arguments": {}}', '{"name": "weather", "arguments": 3}', "<tool_call>no</tool_call>", "{",
    "[1]",
    '<tool_call>{"name": "weather"', "[TOOL_CALLS]", ">>>all\nHi", "a <function=other>{}</function>",
    "[" * 100_000, '{"color": "red", "name": "weather"}',
])  # fmt: skip
def test_text_that_is_not_a_call_stays_text(text: str) -> None:
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
    ("", f"Hi {FORMS['llama 3']}", ("", f"Hi {FORMS['llama 3']}", [])),  # only a text that is nothing else
    ("<think>\n", "</think>Hi.", ("", "Hi.", [])),
    ("<think>", f"Hm.</think>Look.{FORMS['deepseek v3']}", ("Hm.", "Look.", [ROME])),
    ("", "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", ("", "Hi.", [])),
    ("", "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hi.<|END_RESPONSE|>", ("Hm.", "Hi.", [])),
    ("", f"<|START_THINKING|>Hm.<|END_THINKING|>{FORMS['command r7b']}", ("Hm.", "", [ROME])),
    ("<|START_THINKING|>", "Hm.<|END_THINKING|><|START_TEXT|>Hi.<|END_TEXT|>", ("Hm.", "Hi.", [])),
    ("<|END|>\n>>>", 'weather\n{"city": "Rome"}', ("", "", [ROME])),
    (">>>", "all\nHi.", ("", "Hi.", [])),
    (">>>", f"all\nLook.\n{FORMS['functionary, new']}", ("", "Look.", [ROME])),
    (">>>", "Hi.", ("", "Hi.", [])),
    (
        "<|start|>assistant",
        ' to=functions.weather<|channel|>analysis <|constrain|>json<|message|>{"city": "Rome"}',
        ("", "", [ROME]),
    ),
    (
        "<|start|>assistant",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.weather"
        '<|channel|>analysis<|message|>{"city": "Rome"}',
        ("Hm.", "", [ROME]),
    ),
    ("<|start|>assistant", "<|channel|>commentary to=assistant<|channel|>final<|message|>Hi.", ("", "Hi.", [])),
    ("<|start|>assistant", "<|channel|>commentary to=python <|constrain|>code<|message|>print(1)", ("", "", [])),
    ("<|start|>assistant", "<|channel|>commentary<|message|>Hi.", ("", "Hi.", [])),
    (
        "<|start|>assistant",
        "<|channel|>commentary to=assistant<|channel|>commentary to=functions.weather <|constrain|>json"
        '<|message|>{"city": "Rome"}',
        ("", "", [ROME]),
    ),
    ("<|start|>assistant", "to be", ("", "to be", [])),
    ("", f"[THINK]Hm.[/THINK]{FORMS['mistral, new']}", ("Hm.", "", [ROME])),
]  # the expectations of llama.cpp's tests/test-chat.cpp for the same templates


@pytest.mark.parametrize("prompt,text,wanted", ANSWERS)
def test_an_answer_is_read_the_same_in_any_pieces(prompt: str, text: str, wanted: Any) -> None:
    for seed in range(40):
        r, reader = random.Random(seed), AnswerReader(prompt, reasoning=True, tools=NAMES)
        parts, at = [], 0
        while at < len(text):
            n = len(text) if seed == 0 else r.randint(1, 1 if seed == 1 else 7)
            parts += reader.feed(text[at : at + n])
            at += n
        assert merged(parts + reader.finish()) == wanted


WORDS = [
    *MARKS, *(form for form in FORMS.values()), HARMONY, "<think>", "</think>", "[THINK]", "[/THINK]", "<|channel|>",
    "<|message|>", "<|end|>", "<|start|>assistant", " to=functions.weather", "analysis", "final", "<|START_RESPONSE|>",
    "<|END_RESPONSE|>", "weather", '{"city": "Rome"}', "</tool_call>", "{", "[", "}", " ", "\n", "a", "all", "<", ">",
]  # fmt: skip
PROMPTS = ["", "<think>\n", ">>>", "<|start|>assistant"]


@given(st.sampled_from(PROMPTS), st.booleans(), st.sampled_from([NAMES, ()]),
       st.lists(st.sampled_from(WORDS) | st.text("<|>/[]{ \nat", max_size=3), max_size=7), st.data())  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_any_pieces_of_any_text_give_the_same_answer(
    prompt: str, reasoning: bool, tools: Any, words: list[str], data: st.DataObject
) -> None:
    text = "".join(words)

    def read(cuts: list[int]) -> Any:
        reader, parts = AnswerReader(prompt, reasoning=reasoning, tools=tools), []
        for a, b in itertools.pairwise([0, *cuts, len(text)]):
            parts += reader.feed(text[a:b])
        return merged(parts + reader.finish())

    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    assert read(cuts) == read([]) == read(list(range(1, len(text))))


def test_gpt_oss_without_reasoning_keeps_its_thoughts_where_they_are() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi."
    reader = AnswerReader("<|start|>assistant", reasoning=False, tools=NAMES)
    whole = merged([*reader.feed(text), *reader.finish()])
    assert whole == ("", "<|channel|>analysis<|message|>Hm.<|end|>Hi.", [])


def test_text_is_streamed_as_it_arrives() -> None:
    reader = AnswerReader("", reasoning=True, tools=NAMES)
    assert reader.feed("Hello, the") == [Part(content="Hello, the")]
    assert reader.feed(" king <to") == [Part(content=" king")]
    assert reader.feed("ken> ") == [Part(content=" <token>")]
    thinking = AnswerReader("<think>", reasoning=True)
    assert thinking.feed("Let me") == [Part(reasoning="Let me")]
    assert AnswerReader("", reasoning=False).feed("<think>Hm.</think>Hi.") == [Part(content="<think>Hm.</think>Hi.")]
