"""A call of a tool while it is being written: its name when the arguments begin, then pieces of the arguments.

Only arguments that are a JSON object come in pieces. Other forms (Qwen3-Coder's parameters) come whole, at the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from duo.chat.tool_calls import CALL_BEGIN, SEP, Call

_ID = r'(?:"(?:id|tool_call_id)"\s*:\s*"(?P<id>[^"\\]*)"\s*,\s*)?'
# What stands before the arguments, in the forms of duo.chat.tool_calls.
HEADS = tuple(
    re.compile(head + r"\s*(?=\{)")
    for head in (
        r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?(?:"function"\s*:\s*\{\s*)?'
        + _ID
        + r'"(?:name|tool_name)"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:',
        r"<function=(?P<name>[^>\s]+)>",
        r">>>(?P<name>[^\n{]+)\n?",
        r"\[TOOL_CALLS\]\s*(?P<name>[^\[{\s]+)(?:\[CALL_ID\](?P<id>[^\[{\s]*))?(?:\[ARGS\])?",
        rf"{CALL_BEGIN}function{SEP}(?P<name>[^\n]+)\n```json\n",
        rf"{CALL_BEGIN}(?P<name>[^\n{SEP[0]}]+){SEP}",
    )
)
N_HEAD = 500  # characters; what has no head by then is no call in JSON


@dataclass(frozen=True)
class CallPiece:
    """A part of a call. The first one of a call has its name."""

    index: int
    name: str = ""
    id: str = ""  # as the model wrote it; empty: it wrote none
    arguments: str = ""


class CallPieces:
    """The calls of one answer. `update` takes the call that is being written, `rest_of` the calls that are complete.
    tools: their names."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._n_begun = self._n_complete = 0
        self._start_over()

    def _start_over(self) -> None:
        self._seen = 0  # characters of the text that were read
        self._head = ""  # the end of them, which may belong to the next head
        self._sent = ""  # the part of the current arguments that pieces hold
        self._depth = 0  # of braces in the current arguments; 0: no arguments are being written
        self._quoted = self._escaped = self._given_up = False

    def update(self, name: str, text: str) -> list[CallPiece]:
        """The new pieces. name: the tool whose arguments the text is; empty: the text names it. text: all so far."""
        fresh, self._seen = text[self._seen :], len(text)
        if name and self._n_begun == self._n_complete:
            self._head += fresh
            return self._begin(name, "", len(self._head) - len(self._head.lstrip()))
        return list(self._read(fresh))

    def _begin(self, name: str, call_id: str, at: int) -> list[CallPiece]:
        if not self._head[at:].startswith("{"):
            return []
        rest, self._head = self._head[at:], ""
        self._n_begun += 1
        self._depth, self._sent = 0, ""
        return [CallPiece(self._n_begun - 1, name, call_id), *self._arguments(rest)]

    def _arguments(self, text: str) -> Iterator[CallPiece]:
        n = self._n_arguments(text)
        if n:
            self._sent += text[:n]
            yield CallPiece(self._n_begun - 1, arguments=text[:n])
        if not self._depth:
            yield from self._read(text[n:])

    def _read(self, text: str) -> Iterator[CallPiece]:
        if self._depth:
            yield from self._arguments(text)
            return
        if self._given_up:
            return
        self._head += text
        heads = [m for head in HEADS if (m := head.search(self._head))]
        if not heads:
            self._given_up = len(self._head) > N_HEAD
            return
        first = min(heads, key=lambda m: (m.start(), -m.end()))
        if first["name"].strip() not in self._tools:
            self._given_up = True
            return
        yield from self._begin(first["name"].strip(), first.groupdict().get("id") or "", first.end())

    def _n_arguments(self, text: str) -> int:
        """Characters up to the end of the object."""
        for i, c in enumerate(text):
            if self._quoted:
                self._quoted = self._escaped or c != '"'
                self._escaped = c == "\\" and not self._escaped
            elif c == '"':
                self._quoted = True
            elif c in "{[":
                self._depth += 1
            elif c in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return i + 1
        return len(text)

    def rest_of(self, calls: Sequence[Call]) -> list[CallPiece]:
        """The pieces that are missing when these calls are complete: whole calls, and the end of one."""
        first, self._n_complete = self._n_complete, self._n_complete + len(calls)
        pieces = [CallPiece(first + i, c.name, c.id, c.arguments) for i, c in enumerate(calls)]
        missing = [p for p in pieces if p.index >= self._n_begun]
        if self._depth and (begun := [p for p in pieces if p.index == self._n_begun - 1]):
            rest = begun[0].arguments.removeprefix(self._sent)
            missing[:0] = [CallPiece(begun[0].index, arguments=rest)] if rest != begun[0].arguments else []
        self._n_begun = max(self._n_begun, self._n_complete)
        self._start_over()
        return missing
