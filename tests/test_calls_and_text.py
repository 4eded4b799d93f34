"""Calls with text around them, and calls that the limit cuts: streams and whole answers say the same everywhere."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_call_pieces import HARMONY, Plain, read
from weather_tools import FORMS, NAMES, ROME, split_calls

from duo.chat import call_scanner, piecewise_text
from duo.chat.piecewise_text import STRICT, PiecewiseText
from duo.chat.reading import AnswerReader, joined
from duo.chat.tool_calls import MARKS, Call
from duo.compat.llama_cpp.answer import Reading
from duo.compat.llama_cpp.chat_answer import ChatAnswer
from duo.compat.openai.answers import AnswerDicts
from duo.generation.result import Chunk
from duo.server.formats.chat import ChatShape
from duo.server.formats.messages import MessagesShape
from duo.server.formats.responses import ResponsesShape
from duo.server.schemas import ResponsesFields
from duo.server.text import ServedText

HERMES = FORMS["hermes"]
OPTIONS = dict.fromkeys(("temperature", "top_p", "presence_penalty", "frequency_penalty"), 0.0)
JOB: Any = SimpleNamespace(stop=(), tokens=[1], options=OPTIONS)
# Text, calls (name and arguments), and why it ended.
Answer = tuple[str, list[tuple[str, str]], str]


def reader() -> AnswerReader:
    return AnswerReader("", reasoning=True, tools=NAMES)


def served(pieces: list[str], finish: str, shape: type, **more: Any) -> tuple[list[tuple[str, Any]], Any]:
    """Events of the stream, and the whole answer."""
    text = ServedText(0, JOB, "", Reading(Plain(), reader()))  # type: ignore[arg-type]
    made = shape(None, "m", [text], **more)
    events = []
    for chunk in [*map(Chunk, pieces), Chunk("", finish_reason=finish)]:
        events += made.events(text, text.take(chunk))
    whole = ServedText(0, JOB, "", Reading(Plain(), reader()))  # type: ignore[arg-type]
    whole.take(Chunk("".join(pieces)))
    whole.take(Chunk("", finish_reason=finish))
    return events, shape(None, "m", [whole], **more).answer()


def of_message(choice: Any) -> Answer:
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"].get("tool_calls", ())]
    return choice["message"]["content"] or "", calls, choice["finish_reason"]


def of_deltas(chunks: list[Any]) -> Answer:
    content, finish = "", ""
    calls: list[tuple[str, str]] = []
    for (choice,) in (c["choices"] for c in chunks):
        content += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        for piece in choice["delta"].get("tool_calls") or ():
            if "name" in piece["function"]:
                assert piece["index"] == len(calls) and piece["id"]
                calls.append((piece["function"]["name"], ""))
            calls[-1] = (calls[-1][0], calls[-1][1] + piece["function"]["arguments"])
    return content, calls, finish


def of_blocks(events: list[tuple[str, Any]]) -> tuple[list[Any], str]:
    """Anthropic's: blocks as (type, name, text)."""
    blocks: list[Any] = []
    for name, e in events:
        if name == "content_block_start":
            blocks.append([e["content_block"]["type"], e["content_block"].get("name"), ""])
        elif name == "content_block_delta" and e["delta"]["type"] != "signature_delta":
            field = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
            blocks[-1][2] += e["delta"][field[e["delta"]["type"]]]
    return blocks, events[-2][1]["delta"]["stop_reason"]


def of_items(response: Any) -> tuple[list[Any], str]:
    fields = [(i["type"], i.get("name"), i.get("arguments"), i["status"], i.get("content")) for i in response["output"]]
    return fields, response["status"]


class PlainText:
    """A text of Python's API (duo.compat.llama_cpp.answer.CompletionAnswer)."""

    def __init__(self, pieces: list[str], finish: str) -> None:
        self.spelled, self._pieces, self._finish = Plain(), pieces, finish
        self.dicts = AnswerDicts("m", "1")

    def pieces(self) -> Iterator[tuple[str, None, str | None]]:
        for piece in self._pieces:
            self.spelled.add(Chunk(piece))
            yield piece, None, None
        yield "", None, self._finish

    def completion(self) -> Any:
        self.spelled.add(Chunk("".join(self._pieces)))
        return {"choices": [{"text": "", "finish_reason": self._finish, "logprobs": None}], "usage": None}


def python(pieces: list[str], finish: str) -> tuple[Answer, Answer]:
    texts: list[Any] = [PlainText(pieces, finish) for _ in range(2)]
    stream, whole = (ChatAnswer(t, Reading(t.spelled, reader())) for t in texts)
    return of_deltas(list(stream.parts())), of_message(whole.completion()["choices"][0])


def check(pieces: list[str], finish: str = "stop") -> Answer:
    """The answer, which all dialects tell alike."""
    events, whole = served(pieces, finish, ChatShape)
    answer = of_message(whole["choices"][0])
    assert of_deltas([e for _, e in events]) == answer
    assert python(pieces, finish) == (answer, answer)
    events, whole = served(pieces, finish, MessagesShape)
    blocks, why = of_blocks(events)
    assert [b[0] for b in blocks] == [b["type"] for b in whole["content"]] and why == whole["stop_reason"]
    for (kind, name, text), block in zip(blocks, whole["content"], strict=True):
        if kind == "tool_use":
            assert name == block["name"] and (parsed(text) == block["input"])
        else:
            assert text == block[kind]
    told = [(b[1], b[2]) for b in blocks if b[0] == "tool_use"]
    assert (told, "".join(b[2] for b in blocks if b[0] == "text")) == (answer[1], answer[0])
    events, whole = served(pieces, finish, ResponsesShape, request=ResponsesFields())
    assert of_items(events[-1][1]["response"]) == of_items(whole)
    assert [(i["name"], i["arguments"]) for i in whole["output"] if i["type"] == "function_call"] == answer[1]
    return answer


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}


ARGUMENTS = '{"city": "Rome"}'
CALLED = [("weather", ARGUMENTS)]


@pytest.mark.parametrize("text,content,calls", [
    (HERMES + " bye", "bye", CALLED),
    ("Look.\n" + HERMES + "\nbye\n", "Look.\nbye", CALLED),
    (HERMES + '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
     '<tool_call>{"name": "other", "arguments": {}}</tool_call>', CALLED),
    (FORMS["mistral"] + " ok", "ok", CALLED),
    (FORMS["functionary"] + " done", "done", CALLED),
    (FORMS["qwen3-coder"] + "\n\nDone.", "Done.", CALLED),
    (FORMS["llama 3"] + " as you see", "as you see", CALLED),
    ('[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "other", "arguments": {}}]',
     ', {"name": "other", "arguments": {}}]', CALLED),
    ("One: " + HERMES + " Two: " + FORMS["mistral, new"] + ".", "One: Two:.", CALLED * 2),
    (HERMES.replace(ARGUMENTS, '{"city": 01}'), "", [("weather", '{"city": 01}')]),
    (FORMS["llama 3"].replace("}}", '}, "color": "red"}'), "", CALLED),
    ('<tool_call>{"arguments": {"city": "Rome"}, "name": "weather"}</tool_call>x', "x", CALLED),
    # A brace that is missing, or too many of them.
    (HERMES.replace("}}", "") + HERMES + " bye", "bye", [("weather", '{"city": "Rome"\n'), *CALLED]),
    (HERMES.replace("}}", "}") + HERMES + " bye", "bye", CALLED * 2),
    ('[TOOL_CALLS]weather[ARGS]{"city": ["Rome"' + FORMS["mistral"], "", [("weather", '{"city": ["Rome"'), *CALLED]),
    (HERMES.replace("Rome", "[TOOL_CALLS]</tool_call>"), "", [("weather", '{"city": "[TOOL_CALLS]</tool_call>"}')]),
    (HERMES.replace("}}", "}}]} }") + " bye", "bye", CALLED),
    (HERMES.replace("\n</tool_call>", "} bye"), "} bye", CALLED),
    # A second name.
    (HERMES.replace("}}", '}, "name": "weather"}') + "bye", "bye", CALLED),
    (FORMS["llama 3"].replace('{"name"', '{"tool_name": "weather", "name"'), "", CALLED),
    # Commas between calls without a list.
    (f'{FORMS["llama 3"]}, {FORMS["llama 3"]}, {{"a": 1}}', ', {"a": 1}', CALLED * 2),
])  # fmt: skip
def test_what_follows_a_call_is_text(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    for pieces in ([text], list(text)):
        assert check(pieces) == (content, calls, "tool_calls")


@pytest.mark.parametrize("form", [*FORMS, "gpt-oss"])
def test_a_call_that_the_limit_cuts_is_told_once(form: str) -> None:
    whole = HARMONY.removesuffix("<|call|>") if form == "gpt-oss" else FORMS[form]
    for n in range(1, len(whole), 3):
        content, calls, finish = check([whole[i : min(i + 5, n)] for i in range(0, n, 5)], "length")
        assert finish == "length" and not (calls and content)
        if calls:
            arguments = calls[0][1].replace("{}", "")  # gpt-oss's call might have been one without any
            assert calls[0][0] == "weather" and ARGUMENTS.startswith(arguments)
        elif form != "gpt-oss":
            assert content.strip() == whole[:n].strip()


@pytest.mark.parametrize("end", ["", "<|call|>", " <|call|>"])
def test_a_call_of_gpt_oss_without_arguments(end: str) -> None:
    text = HARMONY.split('{"city"')[0] + end
    for pieces in ([text], list(text)):
        assert check(pieces) == ("", [("weather", "{}")], "tool_calls")


WORDS = [*MARKS, *FORMS.values(), *(f[:-9] for f in FORMS.values()), "weather", ARGUMENTS, "</tool_call>",
         "</function>", "<think>", "</think>", "{", "[", "}", '"', " ", "\n", "a", ", ", ">"]  # fmt: skip


@given(
    st.lists(st.sampled_from(WORDS) | st.text('<|>/[]{ \nat"\\', max_size=3), max_size=6), st.randoms(), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_any_text_is_told_alike(words: list[str], dice: random.Random, cut: bool) -> None:
    text = "".join(words)
    cuts = sorted(dice.randrange(len(text) + 1) for _ in range(dice.randrange(8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    finish = "length" if cut else "stop"
    assert check(pieces, finish) == check([text], finish) == check(list(text), finish)


@pytest.mark.parametrize("text", [
    ">>> 1 + 1\n2", "[1] The first point", "[link](http://a.b)", "{x | x > 1}", '{"answer": 42, "x": [1]}',
    "The mark [TOOL_CALLS] is Mistral's", "functools[1]", '{"name": "duo", "version": 1}', "<function=none>",
    "{'a': 1}", "<tool_call>no", "[]", '[{"city": 1}]', '<tool_call>{"name": "other", "x": 1', "weather >>> clocks",
    '{"function": {"function": {"', '<tool_call>{"function": {"function": {"',
])  # fmt: skip
def test_text_comes_as_soon_as_it_can_be_no_call(text: str) -> None:
    found = AnswerReader("", reasoning=True, tools=NAMES)
    parts = [p for c in text for p in found.feed(c)]
    more = joined([*parts, *found.feed(" and more.")])
    assert more.content == text + " and more." and not more.calls


def test_single_calls() -> None:
    clock = HERMES.replace("weather", "clock")
    listed = '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "clock", "arguments": {}}]'
    harmony = HARMONY + "<|start|>assistant to=functions.clock<|channel|>commentary<|message|>{}<|call|>"
    for text in ("I look.\n" + HERMES + clock + "bye", listed, harmony):
        for cuts in ([], list(range(1, len(text)))):
            single = AnswerReader("", reasoning=True, tools=NAMES, single=True)
            parts, pieces = read(text, cuts, single)
            assert joined(parts).calls == (ROME,) and {p.index for p in pieces} == {0}
            assert joined(parts).content == ("I look." if text[0] == "I" else "")
    assert [c.name for c in split_calls(listed, NAMES)[1]] == ["weather", "clock"]
    raw = AnswerReader("", reasoning=False, tools=NAMES, single=True)
    answer = joined(read(harmony + HARMONY, [], raw)[0])
    assert answer.calls == (ROME,) and answer.content == "<|channel|>analysis<|message|>Hm.<|end|>"


def test_an_id_behind_the_arguments() -> None:
    text = '[TOOL_CALLS][{"name": "weather", "arguments": {}, "id": "a1b2c3d4e"}]'
    assert split_calls(text, NAMES) == ("", [Call("weather", "{}", "a1b2c3d4e")])


@pytest.mark.parametrize(
    "mark,end", [('[TOOL_CALLS][{"x":[', ""), ('[TOOL_CALLS][{"x":[', "]}]"), ('<tool_call>{"x":[', "")]
)
def test_values_that_are_searched_again_and_again(mark: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mark was tried on all that follows. What has been read is counted."""
    n_read = 0

    class Counted:
        def finditer(self, text: str, at: int) -> Iterator[re.Match[str]]:
            nonlocal n_read
            for m in STRICT.finditer(text, at):
                n_read += 1
                yield m

    monkeypatch.setattr(piecewise_text, "STRICT", Counted())
    text = mark * 500 + end * 500
    assert split_calls(text, NAMES) == (text, []) and n_read < 10 * len(text)
    assert split_calls(f"{text} {HERMES}", NAMES) == (text, [ROME])


def test_white_space_that_may_be_before_a_call_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    class Measured(PiecewiseText):
        def add(self, text: str, *, ended: bool) -> None:
            super().add(text, ended=ended)
            lengths.append(len(self.text))

    monkeypatch.setattr(call_scanner, "PiecewiseText", Measured)
    white = " \n" * 1000
    for text, content in (
        ("a" + white + HERMES, "a"),
        ("a" + white + "b", "a" + white + "b"),
        ("a" + white, "a" + white),
    ):
        lengths.clear()
        found = joined(read(text, list(range(1, len(text))))[0])
        assert found.content == content and sum(lengths) < 20 * len(text)
