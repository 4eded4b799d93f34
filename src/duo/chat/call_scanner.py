"""Divides an answer into its text and its calls of tools, while it comes.

A call counts from the moment when its tool and the first brace of its arguments are known: its arguments then come in
pieces, and it stays a call whatever follows, the end of the text included. Other forms (Qwen3-Coder's parameters,
arguments before the name) come whole, when they are complete. All else is text, as soon as it can be no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from duo.chat.call_events import CallEvents, Event
from duo.chat.object_calls import ObjectCalls
from duo.chat.piecewise_text import PiecewiseText, Wait
from duo.chat.tool_calls import CALL_BEGIN, CALLS_BEGIN, MARKS, SEP, Call, n_begun, parameter_value

MARK = re.compile("|".join(map(re.escape, MARKS)))
N_MARK = max(map(len, MARKS))
LINE, ANGLE, BRACE, MISTRAL, DEEPSEEK = map(re.compile, ("\n", "[<>]", "[\n{]", r"[\[{\s]", f"[\n<{SEP[1]}]"))

# Characters that calls which prove to be none may cost: so many, and so many for each one before the mark. A model that
# repeats a mark for ever would make each one search the rest of the text.
N_SEARCHED, N_EACH = 100_000, 4


class CallScanner:
    """tools: their names, or their schemas by name. alone: a call at the begin of the text needs no mark. single: only
    the first call counts, and nothing behind it."""

    def __init__(self, tools: Collection[str], *, alone: bool = True, single: bool = False) -> None:
        self._tools, self._single = tools, single
        self._source = PiecewiseText()
        self._events = CallEvents(self._source)
        self._objects = ObjectCalls(tools, self._source, self._events, single=single)
        self._run = self._scan(alone=alone)

    def feed(self, text: str, *, last: bool = False) -> list[Event]:
        """What is certain now: text, pieces of calls, and calls when all of their pieces have come."""
        self._source.add(text, ended=last)
        next(self._run, None)
        return self._events.take()

    def _scan(self, *, alone: bool) -> Wait[None]:
        source = self._source
        if alone and (yield from source.spaces()) in ("{", "["):
            yield from self._objects.read(marked=False)
        if not self._events.n_calls:
            source.at = 0
        while not (self._single and self._events.n_calls):
            mark = yield from self._text()
            if not mark:
                return
            is_tried = source.n_searched <= N_SEARCHED + N_EACH * source.n_cut
            source.at += len(mark)
            if is_tried and (yield from self._marked(mark)):
                yield from self._ends(MARKS[mark])
            else:
                source.at = 1
        while True:
            source.cut(len(source.text))
            yield

    def _text(self) -> Wait[str]:
        """Shows text up to the next mark, and returns that; empty: the text has ended."""
        source = self._source
        while True:
            mark = MARK.search(source.text, source.at)
            if source.ended and not mark:
                self._events.end()
                return ""
            tail = max(source.at, len(source.text) - N_MARK)
            source.at = mark.start() if mark else len(source.text) - n_begun(source.text[tail:], MARKS)
            self._events.show(source.at)
            if mark:
                return mark[0]
            yield

    def _ends(self, marks: Collection[str]) -> Wait[None]:
        """Leaves out the marks that end a call, and brackets before them, of which a model wrote too many."""
        source = self._source
        while marks:
            yield from source.spaces(r"\]}")
            if not (mark := (yield from source.one_of(marks))):
                if source.ended and any(m.startswith(source.text[source.at :]) for m in marks):
                    source.cut(len(source.text))  # the limit cut it, or there is white space
                break
            source.cut(source.at + len(mark))
        source.at = 0

    # ---- calls behind a mark

    def _name(self, stops: re.Pattern[str]) -> Wait[str]:
        """A tool's name; empty: it is none."""
        word = yield from self._source.until(stops, lambda w: any(t.startswith(w.strip()) for t in self._tools))
        return word.strip() if word and word.strip() in self._tools else ""

    def _marked(self, mark: str) -> Wait[bool]:
        """Reads on behind the mark; False: there is no call."""
        source = self._source
        if mark == "<function=":
            return (yield from self._function())
        if mark == ">>>":
            return (yield from self._events.named((yield from self._name(BRACE))))
        if mark == "[TOOL_CALLS]" and (yield from source.spaces()) not in ("[", "{"):
            return (yield from self._mistral())
        if mark in (CALLS_BEGIN, CALL_BEGIN):
            return (yield from self._deepseek(mark))
        if mark == "<tool_call>":
            yield from source.spaces()
            if word := (yield from source.one_of(("<function=",))):
                source.at += len(word)
                return (yield from self._function())
        if mark == "functools[":
            source.at -= 1
        return (yield from self._objects.read(marked=True))

    def _function(self) -> Wait[bool]:
        """Functionary's <function=name>{...}, or Qwen3-Coder's parameters."""
        source = self._source
        name = yield from self._name(ANGLE)
        if not name or source.text[source.at] != ">":
            return False
        source.at += 1
        if (yield from source.spaces()) == "{":
            return (yield from self._events.named(name))
        values = {}
        while (word := (yield from source.one_of(("<parameter=", *MARKS["<function="])))) == "<parameter=":
            source.at += len(word)
            key = yield from source.until(ANGLE)
            if not key or source.text[source.at] != ">":
                return False
            source.at += 1
            text = yield from source.before("</parameter>")
            if text is None:
                return False
            text = text.removeprefix("\n").removesuffix("\n")
            values[key.strip()] = parameter_value(self._tools, name, key.strip(), text)
            yield from source.spaces()
        if not word and not (values and source.at == len(source.text)):
            return False
        return self._events.whole(Call(name, json.dumps(values, ensure_ascii=False)))

    def _mistral(self) -> Wait[bool]:
        """name[ARGS]{...}, with or without [CALL_ID]id before [ARGS]."""
        source = self._source
        name, call_id = (yield from self._name(MISTRAL)), ""
        word = "[" if name else ""
        while word:
            word = yield from source.one_of(("[ARGS]", "[CALL_ID]"))
            source.at += len(word)
            if word == "[CALL_ID]":
                call_id = (yield from source.until(MISTRAL)) or ""
        return (yield from self._events.named(name, call_id))

    def _deepseek(self, mark: str) -> Wait[bool]:
        """V3's name and arguments, or R1's with the word function before them."""
        source = self._source
        if mark == CALLS_BEGIN:
            yield from source.spaces()
            source.at += len((yield from source.one_of((CALL_BEGIN,))))
        name = yield from source.until(DEEPSEEK)
        if name is None or not (yield from source.one_of((SEP,))):
            return False
        source.at += len(SEP)
        if name.strip() == "function" and (yield from source.spaces()) != "{":
            name = yield from self._name(LINE)
            yield from source.spaces()
            source.at += len((yield from source.one_of(("```json",))))
        return name is not None and name.strip() in self._tools and (yield from self._events.named(name.strip()))
