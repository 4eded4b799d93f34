"""Regular expressions, as JSON schemas have them (ECMA-262), read into a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from duo.grammar.char_class import LAST, Ranges, complement, ranges_of, united

N_BRANCHES = 64  # that the alternatives of one pattern may become
N_DEEP = 30  # groups within each other
# Each digit belongs to one group only, so the time is linear.
QUANTIFIER = re.compile(r"[*+?]|\{(?=\d|,\d)(\d*)(?:(,)(\d*))?\}")
GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)")
HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")
DIGITS = united([(ord("0"), ord("9"))])
WORD = united([*DIGITS, (ord("A"), ord("Z")), (ord("a"), ord("z")), (ord("_"), ord("_"))])
BLANKS = united([*ranges_of(" \t\n\v\f\r\xa0\u1680\u2028\u2029\u202f\u205f\u3000"), (0x2000, 0x200A)])
LINE_ENDS = ranges_of("\n\r\u2028\u2029")
# What \s means to ECMA-262 or to Python's validators, and not to both, is in neither \s nor \S nor [^\s].
DOUBTFUL = united([(0x1C, 0x1F), (0x85, 0x85), (0xFEFF, 0xFEFF)])
CLASSES = {
    "d": DIGITS, "D": complement(DIGITS), "w": WORD, "W": complement(WORD),
    "s": BLANKS, "S": complement(united([*BLANKS, *DOUBTFUL])),
}  # fmt: skip
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class UnsupportedPatternError(Exception):
    """The pattern may be right, and no grammar says the same."""


@dataclass(frozen=True)
class Chars:
    ranges: Ranges | None
    """None: any character."""


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    options: tuple[Sequence, ...]


@dataclass(frozen=True)
class Repeat:
    item: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Anchor:
    mark: str


Node = Chars | Sequence | Choice | Repeat | Anchor
ANYTHING = Repeat(Chars(None), 0, None)


def lengths(node: Node) -> tuple[int, int | None]:
    """Of the texts that a node means: the least and the most characters; None: no limit."""
    match node:
        case Chars():
            return 1, 1
        case Anchor():
            return 0, 0
        case Sequence(items):
            found = [lengths(x) for x in items]
            return sum(least for least, _ in found), _sum([most for _, most in found])
        case Choice(options):
            found = [lengths(x) for x in options]
            mosts = [most for _, most in found if most is not None]
            return min(least for least, _ in found), max(mosts) if len(mosts) == len(found) else None
        case Repeat(item, least, most):
            low, high = lengths(item)
            return low * least, 0 if 0 in (high, most) else None if high is None or most is None else high * most


def _sum(numbers: list[int | None]) -> int | None:
    known = [n for n in numbers if n is not None]
    return sum(known) if len(known) == len(numbers) else None


def branches(pattern: str) -> list[Sequence]:
    """What a string is that matches: one of these, from its first to its last character. Raises ValueError, and
    UnsupportedPatternError."""
    found = []
    for items in _expanded((_PatternReader(pattern).read(),)):
        first, last = 0, len(items)
        while first < last and items[first] == Anchor("^"):
            first += 1
        while last > first and items[last - 1] == Anchor("$"):
            last -= 1
        inner = items[first:last]
        if any(map(_has_anchor, inner)):
            raise ValueError(f"the pattern {_short(pattern)} has ^ or $ at a place where neither can hold")
        before = () if first else (ANYTHING,)
        behind = () if last < len(items) else (ANYTHING,)
        if (before or behind) and lengths(Sequence(inner))[0] == 0:
            inner, before, behind = (), (ANYTHING,), ()
        found.append(Sequence((*before, *inner, *behind)))
        if len(found) > N_BRANCHES:
            raise UnsupportedPatternError
    return found


def _short(pattern: str) -> str:
    return pattern if len(pattern) <= 80 else pattern[:80] + "..."


def _has_anchor(node: Node) -> bool:
    match node:
        case Anchor():
            return True
        case Sequence(parts) | Choice(parts):
            return any(map(_has_anchor, parts))
        case Repeat(item, _, _):
            return _has_anchor(item)
    return False


def _expanded(items: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """Groups that contain anchors, at the begin or the end, become alternatives of the whole pattern."""
    marks = [i for i, x in enumerate(items) if not isinstance(x, Anchor)]
    for i in sorted({marks[0], marks[-1]}) if marks else ():
        x = items[i]
        if isinstance(x, Sequence | Choice) and _has_anchor(x):
            for option in x.options if isinstance(x, Choice) else (x,):
                yield from _expanded((*items[:i], *option.items, *items[i + 1 :]))
            return
    yield items


class _PatternReader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._n_open = text, 0, 0

    def read(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._wrong("unbalanced parenthesis")
        return node

    def _wrong(self, why: str) -> ValueError:
        where = f"{why} at character {self._at}"
        return ValueError(f"the pattern {_short(self._text)} is not a regular expression ({where})")

    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._here() == "|":
            self._at += 1
            options.append(self._sequence())
        return Choice(tuple(options)) if len(options) > 1 else options[0]

    def _sequence(self) -> Sequence:
        items: list[Node] = []
        while (c := self._here()) and c not in "|)":
            if c in "^$":
                self._at += 1
                items.append(Anchor(c))
                if QUANTIFIER.match(self._text, self._at):
                    raise self._wrong("nothing to repeat")
            else:
                items.append(self._quantified(self._atom(c)))
        return Sequence(tuple(items))

    def _quantified(self, item: Node) -> Node:
        found = QUANTIFIER.match(self._text, self._at)
        if found is None:
            return item
        self._at = found.end()
        if self._here() == "+" or _has_anchor(item):  # Python's, which takes back no characters; and (a$)?
            raise UnsupportedPatternError
        self._at += self._here() == "?"  # as few as possible, which are the same texts
        if QUANTIFIER.match(self._text, self._at):
            raise self._wrong("multiple repeat")
        if found[0][0] != "{":
            return Repeat(item, int(found[0] == "+"), 1 if found[0] == "?" else None)
        least = int(found[1][:9] or 0)
        most = least if not found[2] else int(found[3][:9]) if found[3] else None
        if most is not None and most < least:
            raise self._wrong(f"{least} times at least and {most} at most")
        return Repeat(item, least, most)

    def _atom(self, c: str) -> Node:
        if c == "(":
            return self._group()
        if c == "[":
            return Chars(self._class())
        if QUANTIFIER.match(self._text, self._at):
            raise self._wrong("nothing to repeat")
        if c == "\\":
            return Chars(self._escape())
        if 0xD800 <= ord(c) < 0xE000:
            raise UnsupportedPatternError
        self._at += 1
        return Chars(complement(LINE_ENDS) if c == "." else ranges_of(c))

    def _group(self) -> Node:
        found = GROUP.match(self._text, self._at)
        if found is None and self._text[self._at + 1 : self._at + 2] == "?":
            raise UnsupportedPatternError  # it looks ahead or back, or sets a flag
        self._at = found.end() if found else self._at + 1
        self._n_open += 1
        if self._n_open > N_DEEP:  # each is looked at with all that are in it
            raise UnsupportedPatternError
        node = self._choice()
        self._n_open -= 1
        if self._here() != ")":
            raise self._wrong("unterminated group")
        self._at += 1
        return node

    def _escape(self, *, in_class: bool = False) -> Ranges:
        """What begins with a backslash."""
        c = self._text[self._at + 1 : self._at + 2]
        if not c:
            raise self._wrong("a backslash")
        if found := HEX.match(self._text, self._at + 1):
            code = int(found[1] or found[2] or found[3], 16)
            if code > LAST or 0xD800 <= code < 0xE000:
                raise UnsupportedPatternError
            self._at = found.end()
            return united([(code, code)])
        is_octal = c == "0" and self._text[self._at + 2 : self._at + 3].isdigit()
        self._at += 2
        if c in CLASSES:
            return CLASSES[c]
        if c == "b" and in_class:
            return ranges_of("\b")
        if c in CONTROLS and not is_octal:
            return ranges_of(CONTROLS[c])
        if c.isalnum() or 0xD800 <= ord(c) < 0xE000:  # \b, \1, \p{L} and what is unknown
            raise UnsupportedPatternError
        return ranges_of(c)

    def _class(self) -> Ranges:
        begin = self._at
        self._at += 1
        negated = self._here() == "^"
        self._at += negated
        if self._here() == "]":  # nothing in ECMA-262, a bracket in Python
            raise UnsupportedPatternError
        found: list[tuple[int, int]] = []
        while (c := self._here()) != "]":
            if not c:
                self._at = begin
                raise self._wrong("unterminated character class")
            low = self._member()
            if self._here() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    found += [*low, *high, (ord("-"), ord("-"))]  # as in [\w-.]
                elif high[0][0] < low[0][0]:
                    raise self._wrong("bad character range")
                else:
                    found.append((low[0][0], high[0][0]))
            else:
                found += low
        self._at += 1
        if not negated:
            return united(found)
        has_blanks = re.search(r"\\[sS]", self._text[begin : self._at])
        return complement(united([*found, *DOUBTFUL] if has_blanks else found))

    def _member(self) -> Ranges:
        if self._here() == "\\":
            return self._escape(in_class=True)
        c = self._here()
        if 0xD800 <= ord(c) < 0xE000:
            raise UnsupportedPatternError
        self._at += 1
        return ranges_of(c)
