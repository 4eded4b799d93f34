"""What a model writes in a chat, as it comes: its reasoning, its answer, and its calls of tools.

Reasoning stands between marks (DeepSeek-R1's <think>, Magistral's [THINK], Command R7B's), or in gpt-oss's channels
("harmony": https://cookbook.openai.com/articles/openai-harmony).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from duo.chat.call_events import Event
from duo.chat.call_scanner import CallScanner
from duo.chat.piecewise_text import PiecewiseText, Wait
from duo.chat.tool_calls import Call, CallPiece, n_begun
from duo.errors import BadValueError
from duo.support.wording import quoted

THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
BEGINS = tuple(begin for begin, _ in THOUGHTS)
# With those of gpt-oss's channels.
THOUGHT_MARKS = (*THOUGHTS, ("<|channel|>analysis<|message|>", "<|end|>"))
# Marks around an answer of Command R7B and its relatives.
WRAPS = (("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>"))
CHANNEL, MESSAGE, TO = "<|channel|>", "<|message|>", re.compile(r"to=([\w.-]+)")
HARMONY_PROMPT, FUNCTIONS = "<|start|>assistant", "functions."
RECIPIENT, EVERYBODY = ">>>", "all"  # functionary's
ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL)


REASONING_FORMATS = ("none", "auto", "deepseek")  # llama.cpp's names


def reasoning_of(reasoning_format: object) -> bool:
    """Whether thoughts go into reasoning_content, by the name of a format; None is "none". Raises BadValueError."""
    if reasoning_format is not None and reasoning_format not in REASONING_FORMATS:
        raise BadValueError(f"reasoning_format is {quoted(reasoning_format)}; it is none, auto or deepseek")
    return reasoning_format in ("auto", "deepseek")


@dataclass(frozen=True)
class Part:
    """The new parts of an answer, by their kind."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()
    pieces: tuple[CallPiece, ...] = ()  # of the calls, as they come; a call that is complete has had all of its pieces


def joined(parts: Iterable[Part]) -> Part:
    """Parts that follow each other as one."""
    sequence = list(parts)
    return Part(
        "".join(p.reasoning for p in sequence),
        "".join(p.content for p in sequence),
        tuple(c for p in sequence for c in p.calls),
    )


class AnswerReader:
    """One answer: `feed` it the text, control tokens spelled out, then `finish`.

    prompt: what the template made; a thought may begin there. reasoning: split it off. tools: their names, or their
    schemas by name; none: calls are text. single: only the first call counts, and nothing behind it. The parts do not
    depend on how the text is cut.
    """

    def __init__(self, prompt: str, *, reasoning: bool, tools: Collection[str] = (), single: bool = False) -> None:
        self._reasoning, self._tools, self._single = reasoning, tools, single
        self._text = ""  # the part of the answer that no Part has yet
        self._begun = False  # it is known whether a thought, a channel or the answer comes first
        self._thought = ""  # the mark that ends the current thought; empty: none is open
        self._harmony = False
        self._message: tuple[str, str] | None = None  # channel and tool of the current message
        self._n_calls, self._arguments = 0, ""  # gpt-oss: complete calls, and the arguments of the current one so far
        self._pending = ""  # white space that may be in the middle of them
        prompt = prompt.rstrip()
        end = next((e for b, e in THOUGHTS if prompt.endswith(b)), "")
        self._skip = False  # line ends that come next belong to the marks
        self._scanner: CallScanner | None = None  # None: the answer has not begun
        self._wrap: str | None = None  # the mark at the end of the answer; empty: there is none; None: not known yet
        self._to_role = prompt.endswith(HARMONY_PROMPT)  # gpt-oss goes on with a role's recipient
        self._to_line = prompt.endswith(RECIPIENT) and bool(tools)  # functionary goes on with a recipient
        if end and reasoning:
            self._thought, self._begun, self._skip = end, True, True

    def feed(self, text: str) -> list[Part]:
        """The parts of the answer that are certain now."""
        self._text += text
        return [p for p in self._parts(last=False) if p != Part()]

    def finish(self) -> list[Part]:
        """The parts that are left when the text has ended."""
        return [p for p in self._parts(last=True) if p != Part()]

    def _take(self, n: int) -> str:
        head, self._text = self._text[:n], self._text[n:]
        return head

    def _parts(self, *, last: bool) -> list[Part]:
        if not self._begun and not self._begin(last=last):
            return []
        if self._harmony:
            return self._channels(last=last)
        parts = []
        if self._thought:
            parts.append(self._think(last=last))
        if not self._thought:
            parts += self._answer(last=last)
        return parts

    def _begin(self, *, last: bool) -> bool:
        """Whether a thought, a channel or the answer comes first; False: that cannot be said yet."""
        if self._to_line:
            return self._recipient(last=last)
        text = self._text.lstrip()
        starts = (CHANNEL, *(["to="] if self._to_role else []))
        marks = (*starts, *(BEGINS if self._reasoning else ()))
        if not last and any(mark.startswith(text) and mark != text for mark in marks):
            return False
        self._begun = True
        if text.startswith(starts):
            self._harmony = True
        elif self._reasoning:
            for begin, end in THOUGHTS:
                if text.startswith(begin):
                    self._thought, self._text, self._skip = end, text.removeprefix(begin), True
        return True

    def _recipient(self, *, last: bool) -> bool:
        """The first line is a tool's name, or all."""
        head, mark, rest = self._text.partition("\n")
        if not mark and not last:
            return False
        self._begun = True
        if head.strip() == EVERYBODY:
            self._text = rest
        elif head.strip() in self._tools:
            self._text = RECIPIENT + self._text
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

    def _answer(self, *, last: bool) -> list[Part]:
        self._skip_lines()
        if self._wrap is None and not self._unwrap(last=last):
            return []
        wrap = self._wrap or ""
        if last:
            self._text = self._text.removesuffix(wrap)
        n_held = 0 if last or not wrap else len(wrap) if self._text.endswith(wrap) else n_begun(self._text, (wrap,))
        text = self._take(len(self._text) - n_held)
        if not self._tools:
            return [Part(content=text)]
        if self._scanner is None:
            self._scanner = CallScanner(self._tools, single=self._single)
        return list(_parts_of(self._scanner.feed(text, last=last)))

    def _unwrap(self, *, last: bool) -> bool:
        """Takes the mark before the answer, if there is one; False: that cannot be said yet."""
        if not last and any(begin.startswith(self._text) and begin != self._text for begin, _ in WRAPS):
            return False
        self._wrap = ""
        for begin, end in WRAPS:
            if self._text.startswith(begin):
                self._text, self._wrap = self._text.removeprefix(begin), end
        return True

    # ---- gpt-oss

    def _channels(self, *, last: bool) -> list[Part]:
        parts: list[Part] = []
        while True:
            if self._message is None:
                head, mark, rest = self._text.partition(MESSAGE)
                if not mark:
                    return parts
                to = [name for name in TO.findall(head) if name != "assistant"]
                channels = re.findall(r"<\|channel\|>\s*(\w+)", head)  # a stray one may come before
                self._message, self._text = (channels[-1] if channels else "final", to[-1] if to else ""), rest
                if self._is_raw:
                    parts.append(Part(content=f"{CHANNEL}analysis{MESSAGE}"))
            ends = [at for at in map(self._text.find, ENDS) if at >= 0]
            n = min(ends) if ends else len(self._text) - (0 if last else n_begun(self._text, ENDS))
            parts += self._message_part(*self._message, self._take(n), ended=bool(ends) or last)
            if not ends:
                return parts
            if self._is_raw and self._text.startswith("<|end|>"):
                parts.append(Part(content="<|end|>"))
            self._message = None

    @property
    def _is_raw(self) -> bool:
        """Whether the message is a thought that stays in the content, as it was written."""
        return not self._reasoning and self._message == ("analysis", "") and not self._is_over

    @property
    def _is_over(self) -> bool:
        """Whether what comes is left out."""
        return self._single and self._n_calls > 0

    def _message_part(self, channel: str, tool: str, text: str, *, ended: bool) -> list[Part]:
        if self._is_over:
            return []
        if (name := tool.removeprefix(FUNCTIONS)) in self._tools:
            return self._call_part(name, text, ended=ended)
        if tool and not tool.startswith(FUNCTIONS):
            return []  # a call of something built in, which nobody offered
        if channel == "analysis" and self._reasoning:
            return [Part(reasoning=text)]
        return [Part(content=text)]

    def _call_part(self, name: str, text: str, *, ended: bool) -> list[Part]:
        """Arguments without the white space around them."""
        before, self._pending = self._arguments, self._pending + text
        fresh = (self._pending if before else self._pending.lstrip()).rstrip()
        if ended and not (before or fresh):
            fresh = "{}"  # as in the other forms
        pieces = []
        if fresh or ended:
            self._arguments += fresh
            self._pending = self._pending[len(self._pending.rstrip()) :]
            pieces = [] if before else [CallPiece(self._n_calls, name)]
            pieces += [CallPiece(self._n_calls, arguments=fresh)] if fresh else []
        if not ended:
            return [Part(pieces=tuple(pieces))]
        call = Call(name, self._arguments)
        self._n_calls += 1
        self._arguments = self._pending = ""
        return [Part(calls=(call,), pieces=tuple(pieces))]


def _parts_of(events: Iterable[Event]) -> Iterable[Part]:
    for event in events:
        if isinstance(event, str):
            yield Part(content=event)
        elif isinstance(event, Call):
            yield Part(calls=(event,))
        else:
            yield Part(pieces=(event,))


class CallReader:
    """An answer that is nothing but the arguments of one tool; it is read as `AnswerReader` reads."""

    def __init__(self, tool: str) -> None:
        self._tool, self._source = tool, PiecewiseText()
        self._pieces: list[CallPiece] = []
        self._arguments = ""
        self._run = self._read()

    def feed(self, text: str) -> list[Part]:
        """What comes of the call."""
        self._source.add(text, ended=False)
        return self._parts()

    def finish(self) -> list[Part]:
        """The rest of it. White space around the object, which grammars allow, is no part of it."""
        self._source.add("", ended=True)
        return [*self._parts(), Part(calls=(Call(self._tool, self._arguments),))]

    def _parts(self) -> list[Part]:
        next(self._run, None)
        pieces, self._pieces = self._pieces, []
        return [Part(pieces=tuple(pieces))] if pieces else []

    def _read(self) -> Wait[None]:
        yield from self._source.spaces()
        self._pieces.append(CallPiece(0, self._tool))
        self._source.cut(self._source.at)
        yield from self._source.value(self._took)

    def _took(self, piece: str) -> None:
        if piece:
            self._arguments += piece
            self._pieces.append(CallPiece(0, arguments=piece))
