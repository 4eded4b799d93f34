"""Calls of tools that are objects of JSON, with the tool's name and its arguments in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from duo.chat.call_events import CallEvents
from duo.chat.piecewise_text import PiecewiseText, Wait, decoded
from duo.chat.tool_calls import Call

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
    within: bool = False  # in OpenAI's "function": {...}


class ObjectCalls:
    """Reads them from the source. single: the first one only."""

    def __init__(self, tools: Collection[str], source: PiecewiseText, events: CallEvents, *, single: bool) -> None:
        self._tools, self._source, self._events, self._single = tools, source, events, single

    def read(self, *, marked: bool) -> Wait[bool]:
        """One, a list of them, or several with commas, semicolons or spaces between; False: there is none."""
        source, events, n = self._source, self._events, self._events.n_calls
        in_list = (yield from source.spaces()) == "["
        source.at += in_list
        while not (self._single and events.n_calls > n):
            begin = source.at
            is_next = events.n_calls > n
            c = yield from source.spaces(",;" if is_next else "")
            if c == "]" and in_list and is_next:
                source.cut(source.at + 1)
                in_list = False
            elif c != "{" or not (yield from self._object(marked=marked or is_next)):
                source.at = begin
                break
        return events.n_calls > n

    def _object(self, *, marked: bool) -> Wait[bool]:
        call = Writing()
        is_whole = yield from self._members(call, marked=marked)
        if call.begun:
            self._source.at *= is_whole  # what does not belong to it is text
            return self._events.told(Call(call.name, call.arguments or "", call.id))
        return is_whole and bool(call.name) and self._events.whole(Call(call.name, call.arguments or "{}", call.id))

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
        if key in NAMES and c == '"' and not call.name:
            call.name = (yield from self._source.string()) or ""
            return call.name in self._tools
        if key == "function" and c == "{":
            if call.within:
                return False
            call.within = True
            is_whole = yield from self._members(call, marked=marked)
            call.within = False
            return is_whole
        if key not in ARGUMENTS or call.arguments is not None:
            raw = yield from self._source.raw()
            if key in IDS and raw is not None:
                call.id = (decoded(raw) if c == '"' else raw) or ""
            return raw is not None
        if c == "{" and call.name:
            call.begun = True
            call.arguments = yield from self._events.arguments(call.name, call.id)
            return True
        if c not in ("{", '"'):
            return False
        raw = yield from self._source.raw()
        call.arguments = decoded(raw) if raw is not None and c == '"' else raw
        return call.arguments is not None
