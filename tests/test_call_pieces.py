"""Calls of tools as they are written: the pieces make up the whole, however the text is cut."""

from __future__ import annotations

import json
import random

import pytest
from test_tools import FORMS, NAMES

from duo.chat.reading import AnswerReader, CallReader, Part, joined
from duo.chat.tool_calls import CallPiece
from duo.compat.llama_cpp.answer import Reading
from duo.generation.result import Chunk

HARMONY = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
    '<|constrain|>json<|message|>{"city": "Rome"}<|call|>'
)
LONG = {"city": 'a "quoted" {brace} \\ [and] so on ' * 5, "nested": {"list": [1, {"x": "}"}]}}


class Plain:
    """A text without control tokens (duo.compat.llama_cpp.answer.Spelled)."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, chunk: Chunk) -> None:
        self._text += chunk.text

    def take(self) -> str:
        taken, self._text = self._text, ""
        return taken


def read(
    text: str, cuts: list[int], reader: AnswerReader | CallReader | None = None
) -> tuple[list[Part], list[CallPiece]]:
    """What the text is read as, and the pieces in the order in which they come."""
    used = AnswerReader("", reasoning=True, tools=NAMES) if reader is None else reader
    reading = Reading(Plain(), used)  # type: ignore[arg-type]
    parts: list[Part] = []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        parts += reading.add(Chunk(text[begin:end]))
    parts += reading.finish()
    return parts, [p for part in parts for p in part.pieces]


def calls_of(pieces: list[CallPiece]) -> list[tuple[str, str, str]]:
    """(name, id, arguments) of each call. A call's pieces follow each other, its name first."""
    found: list[tuple[str, str, str]] = []
    for p in pieces:
        if p.name:
            assert p.index == len(found)
            found.append((p.name, p.id, p.arguments))
        else:
            assert p.index == len(found) - 1
            found[-1] = (*found[-1][:2], found[-1][2] + p.arguments)
    return found


@pytest.mark.parametrize("text", [*FORMS.values(), HARMONY], ids=[*FORMS, "gpt-oss"])
def test_pieces_make_up_the_calls(text: str) -> None:
    dice = random.Random(1)
    ways = [[], list(range(1, len(text))), *(sorted(dice.sample(range(1, len(text)), 5)) for _ in range(20))]
    for cuts in ways:
        parts, pieces = read(text, cuts)
        whole = joined(parts)
        assert [c.name for c in whole.calls] == ["weather"] and whole.content == ""
        ((name, _, arguments),) = calls_of(pieces)
        assert name == "weather" and json.loads(arguments) == {"city": "Rome"}


@pytest.mark.parametrize("form", ["hermes", "mistral, new", "functionary", "llama 3", "deepseek v3"])
def test_long_arguments_come_as_they_are_written(form: str) -> None:
    text = FORMS[form].replace('{"city": "Rome"}', json.dumps(LONG))
    _, pieces = read(text, list(range(1, len(text))))
    assert len(pieces) > 100
    ((_, _, arguments),) = calls_of(pieces)
    assert json.loads(arguments) == LONG


def test_several_calls() -> None:
    text = "I look. " + FORMS["hermes"] + "\n" + FORMS["hermes"].replace("weather", "clock").replace("Rome", "Bonn")
    for cuts in ([], list(range(1, len(text))), [30, 60, 90]):
        parts, pieces = read(text, cuts)
        assert joined(parts).content.strip() == "I look."
        assert [(n, json.loads(a)) for n, _, a in calls_of(pieces)] == [
            ("weather", {"city": "Rome"}),
            ("clock", {"city": "Bonn"}),
        ]
    mistral = '[TOOL_CALLS][{"name": "weather", "arguments": {}, "id": "a1"}, {"name": "clock", "arguments": {}}]'
    for cuts in ([], list(range(1, len(mistral)))):
        assert [(n, a) for n, _, a in calls_of(read(mistral, cuts)[1])] == [("weather", "{}"), ("clock", "{}")]


def test_a_call_that_the_end_cuts_off_has_come_as_far_as_it_is_written() -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Ro'
    _, pieces = read(text, list(range(1, len(text))))
    assert calls_of(pieces) == [("weather", "", '{"city": "Ro')]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "nobody", "arguments": {"a": 1}}</tool_call>',
        '{"answer": 42}',
        "[1, 2, 3]",
        "Just <tool_call> words " * 40,
        "A > B >> C >>> D",
    ],
)
def test_what_is_no_call_has_no_pieces(text: str) -> None:
    for cuts in ([], list(range(1, len(text)))):
        parts, pieces = read(text, cuts)
        assert pieces == [] and joined(parts).content.split() == text.split()


@pytest.mark.parametrize("around", ["", " ", "\n  "])
def test_an_answer_that_is_the_arguments_of_one_tool(around: str) -> None:
    text = '{"city": "Rome"}'
    for cuts in ([], list(range(1, len(text)))):
        parts, pieces = read(around + text + around, cuts, CallReader("weather"))
        assert calls_of(pieces) == [("weather", "", text)]
        assert [(c.name, c.arguments) for c in joined(parts).calls] == [("weather", text)]
