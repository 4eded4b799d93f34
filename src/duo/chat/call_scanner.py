"""Divides an answer into its text and its calls of tools, while it comes.

A call counts from the moment when its tool and the first brace of its arguments are known: its arguments then come in
pieces, and it stays a call whatever follows, the end of the text included. Other forms (Qwen3-Coder's parameters,
arguments before the name) come whole, when they are complete. All else is text, as soon as it can be no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from duo.chat.piecewise_text import PiecewiseText, Wait, decoded
from duo.chat.tool_calls import CALL_BEGIN, CALLS_BEGIN, MARKS, SEP, Call, CallPiece, n_begun, parameter_value

Event = str | CallPiece | Call
MARK = re.compile("|".join(map(re.escape, MARKS)))
N_MARK = max(map(len, MARKS))
LINE, ANGLE, BRACE, MISTRAL, DEEPSEEK = map(re.compile, ("\n", "[<>]", "[\n{]", r"[\[{\s]", f"[\n<{SEP[1]}]"))

# Keys of a call that is an object.
NAMES, IDS, ARGUMENTS = ("name", "tool_name", "function"), ("id", "tool_call_id"), ("arguments", "parameters")
KEYS = (*NAMES, *IDS, *ARGUMENTS, "type", "index")


@dataclass
class Writing:
    """A call in JSON of which some is known."""

    name: str = ""
    id: str = ""
    arguments: str | None = None
    begun: bool = False  # its pieces come


class CallScanner:
    """tools: their names, or their schemas by name. alone: a call at the begin of the text needs no mark. single: only
    the first call counts, and nothing behind it."""

    def __init__(self, tools: Collection[str], *, alone: bool = True, single: bool = False) -> None:
        self._tools, self._single = tools, single
        self._source = PiecewiseText()
        self._events: list[Event] = []
        self._n_calls = 0
        self._sent: list[str] = []  # the arguments of the call that is being written
        self._shown = False  # some of the text was
        self._run = self._scan(alone=alone)

    def feed(self, text: str, *, last: bool = False) -> list[Event]:
        """What is certain now: text, pieces of calls, and calls when all of their pieces have come."""
        self._source.add(text, ended=last)
        next(self._run, None)
        events, self._events = self._events, []
        return events

    def _scan(self, *, alone: bool) -> Wait[None]:
        source = self._source
        if alone and (yield from source.spaces()) in ("{", "["):
            yield from self._objects(marked=False)
        if not self._n_calls:
            source.at = 0
        while not (self._single and self._n_calls):
            mark = yield from self._text()
            if not mark:
                return
            begin = source.at
            source.at += len(mark)
            if (yield from self._marked(mark)):
                yield from self._ends(MARKS[mark])
            else:
                source.at = begin + 1
        while True:
            source.cut(len(source.text))
            yield

    # ---- text

    def _text(self) -> Wait[str]:
        """Shows text up to the next mark, and returns that; empty: the text has ended."""
        source = self._source
        while True:
            mark = MARK.search(source.text, source.at)
            tail = max(source.at, len(source.text) - N_MARK)
            end = mark.start() if mark else len(source.text) - n_begun(source.text[tail:], MARKS)
            if source.ended and not mark:
                self._show(len(source.text.rstrip() if self._n_calls else source.text))
                return ""
            at = end if mark else max(source.at, len(source.text) - N_MARK + 1)
            shown = len(source.text[:end].rstrip())  # a call has no white space before it
            source.at = at
            self._show(shown)
            if mark:
                return mark[0]
            yield

    def _show(self, n: int) -> None:
        text = self._source.cut(n)
        if self._n_calls and not self._shown:
            text = text.lstrip()
        if text:
            self._shown = True
            self._events.append(text)

    def _ends(self, marks: Collection[str]) -> Wait[None]:
        """Leaves out the marks that end a call."""
        source = self._source
        while marks:
            yield from source.spaces()
            if not (mark := (yield from source.one_of(marks))):
                if source.ended and any(m.startswith(source.text[source.at :]) for m in marks):
                    source.cut(len(source.text))  # the limit cut it, or there is white space
                break
            source.cut(source.at + len(mark))
        source.at = 0

    # ---- calls

    def _told(self, call: Call) -> bool:
        """The call is complete."""
        self._source.cut(self._source.at)
        self._events.append(call)
        self._n_calls += 1
        self._sent = []
        return True

    def _whole(self, call: Call) -> bool:
        """Nothing of it was told before."""
        self._events.append(CallPiece(self._n_calls, call.name, call.id, call.arguments))
        return self._told(call)

    def _arguments(self, name: str, call_id: str = "") -> Wait[str]:
        """At their brace."""
        self._events.append(CallPiece(self._n_calls, name, call_id))
        self._source.cut(self._source.at)
        yield from self._source.value(self._took)
        return "".join(self._sent)

    def _took(self, piece: str) -> None:
        if piece:
            self._sent.append(piece)
            self._events.append(CallPiece(self._n_calls, arguments=piece))

    def _named(self, name: str | None, call_id: str = "") -> Wait[bool]:
        """A call whose arguments are to come."""
        if not name or (yield from self._source.spaces()) != "{":
            return False
        return self._told(Call(name, (yield from self._arguments(name, call_id)), call_id))

    def _name(self, stops: re.Pattern[str]) -> Wait[str]:
        """A tool's name; empty: it is none."""
        word = yield from self._source.until(stops, lambda w: any(t.startswith(w.strip()) for t in self._tools))
        return word.strip() if word and word.strip() in self._tools else ""

    # ---- calls that are objects

    def _objects(self, *, marked: bool) -> Wait[bool]:
        """Objects that are calls: one, a list of them, or several with semicolons or spaces between."""
        source, n = self._source, self._n_calls
        in_list = (yield from source.spaces()) == "["
        source.at += in_list
        while not (self._single and self._n_calls > n):
            begin = source.at
            is_next = self._n_calls > n
            c = yield from source.spaces((",;" if in_list else ";") if is_next else "")
            if c == "]" and in_list and is_next:
                source.cut(source.at + 1)
                in_list = False
            elif c != "{" or not (yield from self._object(marked=marked or is_next)):
                source.at = begin
                break
        return self._n_calls > n

    def _object(self, *, marked: bool) -> Wait[bool]:
        call = Writing()
        is_whole = yield from self._members(call, marked=marked)
        if call.begun:
            self._source.at *= is_whole  # what does not belong to it is text
            return self._told(Call(call.name, call.arguments or "", call.id))
        return is_whole and bool(call.name) and self._whole(Call(call.name, call.arguments or "{}", call.id))

    def _members(self, call: Writing, *, marked: bool) -> Wait[bool]:
        """From the brace of an object to its end; False: it is no call, or not whole. marked: it may have any key."""
        source, before = self._source, ""
        source.at += 1
        while (c := (yield from source.spaces())) != "}":
            if before:
                if c != ",":
                    return False
                source.at += 1
                yield from source.spaces()
            before = (yield from source.string()) or ""
            is_known = marked or call.begun or before in KEYS
            if not before or not is_known or (yield from source.spaces()) != ":":
                return False
            source.at += 1
            if not (yield from self._member(call, before, (yield from source.spaces()), marked=marked)):
                return False
        source.at += 1
        return True

    def _member(self, call: Writing, key: str, c: str, *, marked: bool) -> Wait[bool]:
        """The value of a key, which begins with c."""
        if key in NAMES and c == '"':
            call.name = call.name or (yield from self._source.string()) or ""
            return call.name in self._tools
        if key == "function" and c == "{":
            return (yield from self._members(call, marked=marked))
        if key not in ARGUMENTS or call.arguments is not None:
            raw = yield from self._source.raw()
            if key in IDS and raw is not None:
                call.id = (decoded(raw) if c == '"' else raw) or ""
            return raw is not None
        if c == "{" and call.name:
            call.begun = True
            call.arguments = yield from self._arguments(call.name, call.id)
            return True
        if c not in ("{", '"'):
            return False
        raw = yield from self._source.raw()
        call.arguments = decoded(raw) if raw is not None and c == '"' else raw
        return call.arguments is not None

    # ---- calls behind a mark

    def _marked(self, mark: str) -> Wait[bool]:
        """Reads on behind the mark; False: there is no call."""
        source = self._source
        if mark == "<function=":
            return (yield from self._function())
        if mark == ">>>":
            return (yield from self._named((yield from self._name(BRACE))))
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
        return (yield from self._objects(marked=True))

    def _function(self) -> Wait[bool]:
        """Functionary's <function=name>{...}, or Qwen3-Coder's parameters."""
        source = self._source
        name = yield from self._name(ANGLE)
        if not name or source.text[source.at] != ">":
            return False
        source.at += 1
        if (yield from source.spaces()) == "{":
            return (yield from self._named(name))
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
        return self._whole(Call(name, json.dumps(values, ensure_ascii=False)))

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
        return (yield from self._named(name, call_id))

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
        return name is not None and name.strip() in self._tools and (yield from self._named(name.strip()))
