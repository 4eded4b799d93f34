"""A text that is read while it comes. Its readers are generators: each yield waits for more of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Generator
from functools import cache
from typing import TypeVar

from duo.chat.tool_calls import n_begun

T = TypeVar("T")
Wait = Generator[None, None, T]

N_NEAR = 500  # characters; keys, names and ids are shorter
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SCALAR = re.compile(r"[-+.\w]*")
LAX = r'["\\\[\]{}]'
STRICT = re.compile(LAX + r"|[^\s\w,:.+-]")  # with what no JSON has outside of its strings


class PiecewiseText:
    """text: what has come and was not cut. at: where it is read. ended: nothing more comes. n_searched: characters of
    long values, each as often as it was read."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.n_cut = self.n_searched = 0
        self._absent: dict[str, int] = {}  # where a search found nothing up to the end

    def add(self, text: str, *, ended: bool) -> None:
        self.text, self.ended = self.text + text, ended

    def cut(self, n: int) -> str:
        """Takes the first characters out."""
        head, self.text = self.text[:n], self.text[n:]
        self.at = max(0, self.at - n)
        self.n_cut += len(head)
        self._absent = {word: at - n for word, at in self._absent.items()}
        return head

    def spaces(self, more: str = "") -> Wait[str]:
        """Goes over white space and these characters. The next one; empty: the text has ended."""
        skipped = re.compile(rf"[ \t\r\n{more}]*")
        while True:
            if m := skipped.match(self.text, self.at):
                self.at = m.end()
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            yield

    def one_of(self, words: Collection[str]) -> Wait[str]:
        """The word that stands here, the longest one; empty: none does."""
        while True:
            rest = self.text[self.at : self.at + max(map(len, words))]
            if self.ended or not any(w.startswith(rest) and w != rest for w in words):
                return max((w for w in words if rest.startswith(w)), key=len, default="")
            yield

    def until(self, stops: re.Pattern[str], fits: Callable[[str], bool] = bool) -> Wait[str | None]:
        """The text before a stop, which is near; None: there is none. fits: whether it can begin so."""
        while True:
            end = self.at + N_NEAR
            stop = stops.search(self.text, self.at, end)
            word = self.text[self.at : stop.start() if stop else end]
            if stop:
                self.at = stop.start()
                return word
            if self.ended or end <= len(self.text) or (word and not fits(word)):
                return None
            yield

    def before(self, word: str) -> Wait[str | None]:
        """The text before this word, and goes behind it; None: it does not come."""
        at = self.at
        while True:
            found = self.text.find(word, at) if at < self._absent.get(word, len(self.text) + 1) else -1
            if found >= 0:
                value, self.at = self.text[self.at : found], found + len(word)
                self.n_searched += len(value)
                return value
            if self.ended:
                self._absent[word] = min(at, self._absent.get(word, at))
                return None
            at = max(self.at, len(self.text) - len(word) + 1)
            yield

    def string(self) -> Wait[str | None]:
        """A short string of JSON; None: it is none."""
        while not (m := STRING.match(self.text, self.at, self.at + N_NEAR)):
            is_short = len(self.text) < self.at + N_NEAR and self.text[self.at : self.at + 1] in ("", '"')
            if self.ended or not is_short:
                return None
            yield
        self.at = m.end()
        return decoded(m[0])

    def raw(self) -> Wait[str | None]:
        """A value of JSON as it is written; None: it is none, or the text has ended."""
        begin = self.at
        if self.text[begin : begin + 1] in ("{", "[", '"'):
            is_whole = yield from self.value()
            self.n_searched += self.at - begin
            return self.text[begin : self.at] if is_whole else None
        while True:
            m = SCALAR.match(self.text, begin, begin + N_NEAR)
            self.at = m.end() if m else begin
            is_near = self.at < begin + N_NEAR
            if not is_near or self.at < len(self.text) or self.ended:
                return self.text[begin : self.at] if is_near and begin < self.at < len(self.text) else None
            yield

    def value(self, took: Callable[[str], object] | None = None, marks: Collection[str] = ()) -> Wait[bool]:
        """Goes behind an object, a list or a string; False: the text has ended, or it is no JSON, and `at` is where
        that shows. took: gets what it consists of as it comes, cut out of the text; it may be no JSON then, but the
        marks end it outside of strings."""
        depth, quoted, escaped, at = 0, False, -1, self.at
        special = _lax(tuple(marks)) if took else STRICT
        while True:
            held = n_begun(self.text, marks) if marks and not self.ended else 0
            for m in special.finditer(self.text, at):
                c = m[0]
                if m.start() == escaped:
                    continue
                if c == '"':
                    quoted = not quoted
                elif c == "\\" and quoted:
                    escaped = m.end()
                elif quoted:
                    continue
                elif c in marks:
                    self.at = m.start()
                    if took:
                        took(self.cut(self.at))
                    return False
                elif m.start() >= len(self.text) - held:
                    break
                elif c in "{[":
                    depth += 1
                elif c in "]}":
                    depth -= 1
                elif took is None:
                    self.at = m.start()
                    return False
                if depth <= 0 and not quoted:
                    self.at = m.end()
                    if took:
                        took(self.cut(self.at))
                    return True
            at = len(self.text) - (0 if quoted else held)
            if took:
                took(self.cut(at))
                escaped, at = escaped - at, 0
            if self.ended:
                self.at = at
                return False
            yield


@cache
def _lax(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join((*map(re.escape, marks), LAX)))


def decoded(string: str) -> str | None:
    """What a string of JSON says, though its lines may end in it; None: it is none."""
    try:
        value = json.loads(string, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None
