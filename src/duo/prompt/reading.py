"""What a model writes in a chat, as it comes: its reasoning, its answer, and its calls of tools.

Reasoning stands between marks (DeepSeek-R1's <think>, Magistral's [THINK], Command R7B's), or in gpt-oss's channels
("harmony": https://cookbook.openai.com/articles/openai-harmony).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from duo.errors import BadValue
from duo.prompt.tool_calls import Call, n_begun, n_shown, split_calls

THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
BEGINS = tuple(begin for begin, _ in THOUGHTS)
CHANNEL, MESSAGE, TO = "<|channel|>", "<|message|>", re.compile(r"to=functions\.([\w.-]+)")
ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL)


REASONING_FORMATS = ("none", "auto", "deepseek")  # llama.cpp's names


def reasoning_of(reasoning_format: object) -> bool:
    """Whether thoughts go into reasoning_content, by the name of a format; None is "none". Raises BadValue."""
    if reasoning_format is not None and reasoning_format not in REASONING_FORMATS:
        raise BadValue(f"reasoning_format is {reasoning_format!r}; it is none, auto or deepseek")
    return reasoning_format in ("auto", "deepseek")


@dataclass(frozen=True)
class Part:
    """What a piece of text has brought."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()


def joined(parts: Iterable[Part]) -> Part:
    """Parts that follow each other as one."""
    found = list(parts)
    return Part(
        "".join(p.reasoning for p in found),
        "".join(p.content for p in found),
        tuple(c for p in found for c in p.calls),
    )


class Reader:
    """One answer: `feed` it the text, control tokens spelled out, then `finish`.

    prompt: what the template made; a thought may begin there. reasoning: split it off. names: of the tools; none: calls
    are text.
    """

    def __init__(self, prompt: str, *, reasoning: bool, names: Collection[str] = ()) -> None:
        self._reasoning, self._names = reasoning, names
        self._text = ""  # not yet given out
        self._begun = False  # what comes first is settled
        self._thought = ""  # the mark that ends the thought which runs
        self._harmony = False
        self._message: tuple[str, str] | None = None  # channel and tool of the message that runs
        self._calls = ""  # of gpt-oss: the arguments so far
        end = next((e for b, e in THOUGHTS if prompt.rstrip().endswith(b)), "")
        self._skip = False  # line ends that come next belong to the marks
        if end and reasoning:
            self._thought, self._begun, self._skip = end, True, True

    def feed(self, text: str) -> list[Part]:
        """What can be said of the answer now."""
        self._text += text
        return [p for p in self._parts(last=False) if p != Part()]

    def finish(self) -> list[Part]:
        """The rest of it."""
        return [p for p in self._parts(last=True) if p != Part()]

    def _take(self, n: int) -> str:
        taken, self._text = self._text[:n], self._text[n:]
        return taken

    def _parts(self, *, last: bool) -> list[Part]:
        if not self._begun and not self._begin(last=last):
            return []
        if self._harmony:
            return self._channels(last=last)
        parts = []
        if self._thought:
            parts.append(self._think(last=last))
        if not self._thought:
            parts.append(self._answer(last=last))
        return parts

    def _begin(self, *, last: bool) -> bool:
        """Whether a thought, a channel or the answer comes first; False: that cannot be said yet."""
        text = self._text.lstrip()
        marks = (CHANNEL, *(BEGINS if self._reasoning else ()))
        if not last and any(mark.startswith(text) and mark != text for mark in marks):
            return False
        self._begun = True
        if text.startswith(CHANNEL):
            self._harmony = True
        elif self._reasoning:
            for begin, end in THOUGHTS:
                if text.startswith(begin):
                    self._thought, self._text, self._skip = end, text.removeprefix(begin), True
        return True

    def _skip_lines(self) -> None:
        if self._skip:
            self._text = self._text.lstrip("\n")
            self._skip = not self._text

    def _think(self, *, last: bool) -> Part:
        self._skip_lines()
        at = self._text.find(self._thought)
        if at < 0:
            n = len(self._text) - (0 if last else n_begun(self._text, (self._thought,)))
            return Part(reasoning=self._take(len(self._text[:n].rstrip())))
        thought = self._take(at).rstrip()
        self._text = self._text.removeprefix(self._thought)
        self._thought, self._skip = "", True
        return Part(reasoning=thought)

    def _answer(self, *, last: bool) -> Part:
        self._skip_lines()
        if not self._names:
            return Part(content=self._take(len(self._text)))
        if not last:
            return Part(content=self._take(n_shown(self._text)))
        content, calls = split_calls(self._take(len(self._text)), self._names)
        return Part(content=content, calls=tuple(calls))

    # ---- gpt-oss

    def _channels(self, *, last: bool) -> list[Part]:
        parts: list[Part] = []
        while True:
            if self._message is None:
                head, mark, rest = self._text.partition(MESSAGE)
                if not mark:
                    return parts
                to = TO.search(head)
                channel = re.search(r"<\|channel\|>\s*(\w+)", head)
                self._message, self._text = (channel[1] if channel else "final", to[1] if to else ""), rest
            ends = [at for at in map(self._text.find, ENDS) if at >= 0]
            n = min(ends) if ends else len(self._text) - (0 if last else n_begun(self._text, ENDS))
            parts += self._message_part(*self._message, self._take(n), ended=bool(ends) or last)
            if not ends:
                return parts
            self._message = None

    def _message_part(self, channel: str, tool: str, text: str, *, ended: bool) -> list[Part]:
        if tool and tool in self._names:
            self._calls += text
            if not ended:
                return []
            arguments, self._calls = self._calls.strip(), ""
            return [Part(calls=(Call(tool, arguments),))]
        if channel == "analysis":
            return [Part(reasoning=text)] if self._reasoning else []
        return [Part(content=text)]
