"""The notation of grammars (GBNF): what is wrong with a text in it.

libllama's reader (src/llama-grammar.cpp) writes its complaints to standard error, past every log. So it gets only
grammars that this one accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from duo.grammar.first_steps import ALTERNATIVE, NO_RULE, too_much
from duo.support.wording import one_line

N_REPEATED = 2000  # times, and rules made of one repetition, at most: libllama's limit
N_ELEMENTS = 1_000_000  # of all repetitions: libllama holds as many, 8 bytes each, in each copy of the grammar
SPACE, SPACE_AND_LINES = re.compile(r"(?:[ \t]|#[^\r\n]*)*"), re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
NAME, INT = re.compile(r"[a-zA-Z0-9-]+"), re.compile(r"[0-9]+")
HEX = {"x": 2, "u": 4, "U": 8}
REPEATED = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Wrong(Exception):  # noqa: N818
    """What is wrong."""


class NeedsVocabulary(Exception):  # noqa: N818
    """The grammar names a token, and there is no model."""


class _GrammarReader:
    def __init__(self, text: str, is_token: Callable[[str], bool] | None) -> None:
        self._text, self._is_token = text, is_token
        self._at = self._n_elements = 0
        self._ids: dict[str, int] = {}
        self._rules: dict[int, list[int]] = {}

    def read(self) -> None:
        self._space(lines=True)
        while self._at < len(self._text):
            self._rule()
        for i in range(max(self._rules, default=-1) + 1):
            if i not in self._rules:
                raise Wrong("Undefined rule")
            for ref in self._rules[i]:
                if ref >= 0 and ref not in self._rules:
                    name = min(name for name, rule_id in self._ids.items() if rule_id == ref)
                    raise Wrong(f"Undefined rule identifier '{name}'")
        if why := too_much(self._rules):
            raise Wrong(why)

    # ---- characters

    def _here(self, n: int = 1) -> str:
        return self._text[self._at : self._at + n]

    def _wrong(self, what: str, at: int | None = None) -> Wrong:
        at = self._at if at is None else at
        return Wrong(f"{what} at {self._text[at : at + 200]}")

    def _space(self, *, lines: bool) -> None:
        match = (SPACE_AND_LINES if lines else SPACE).match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _expect(self, mark: str) -> None:
        if self._here(len(mark)) != mark:
            raise self._wrong(f"expecting {mark if len(mark) > 1 else repr(mark)}")
        self._at += len(mark)

    def _number(self, *, bits: int = 64) -> int:
        match = INT.match(self._text, self._at)
        if match is None:
            raise self._wrong("expecting an int")
        digits = match[0].lstrip("0") or "0"
        if int(digits[:25]) >= 2**bits:  # Python refuses more than 4,300 digits
            raise self._wrong("a number is too big")
        self._at = match.end()
        return int(digits)

    def _char(self) -> None:
        c = self._here(2)
        if not c:
            raise Wrong("unexpected end of input")
        if c[0] != "\\":
            self._at += 1
            return
        if n := HEX.get(c[1:]):
            digits = self._text[self._at + 2 : self._at + 2 + n]
            if not re.fullmatch("[0-9a-fA-F]" * n, digits):
                raise self._wrong(f"expecting {n} hex chars", self._at + 2)
            self._at += 2 + n
        elif c[1:] and c[1:] in 'trn\\"[]-':
            self._at += 2
        else:
            raise self._wrong("unknown escape")

    # ---- rules

    def _id_of(self, name: str) -> int:
        return self._ids.setdefault(name, len(self._ids))

    def _new_id(self, name: str) -> int:
        rule_id = len(self._ids)
        self._ids[f"{name}_{rule_id}"] = rule_id
        return rule_id

    def _name(self) -> str:
        match = NAME.match(self._text, self._at)
        if match is None:
            raise self._wrong("expecting name")
        self._at = match.end()
        return match[0]

    def _rule(self) -> None:
        name = self._name()
        self._space(lines=False)
        rule_id = self._id_of(name)
        self._expect("::=")
        self._space(lines=True)
        self._body(name, rule_id)
        if self._here(2) == "\r\n":
            self._at += 2
        elif self._here() in ("\r", "\n"):
            self._at += 1
        elif self._here():
            raise self._wrong("expecting newline or end")
        self._space(lines=True)

    def _body(self, name: str, rule_id: int) -> None:
        """The alternatives of a rule. Not recursive: parentheses may be nested deeper than Python's calls."""
        outer: list[tuple[list[int], int, int]] = []
        rule: list[int] = []
        start, n_rules = 0, 1  # of the last item: its first element, and the rules that it is made of
        while c := self._here():
            if c == "(":
                self._at += 1
                self._space(lines=True)
                outer.append((rule, rule_id, len(self._ids)))
                rule, rule_id, start, n_rules = [], self._new_id(name), 0, 1
            elif c == ")" and outer:
                self._rules[rule_id], inner = rule, rule_id
                rule, rule_id, n_before = outer.pop()
                start, n_rules = len(rule), max(1, len(self._ids) - n_before)
                rule.append(inner)
                self._at += 1
                self._space(lines=bool(outer))
            elif c == "|":
                rule.append(ALTERNATIVE)
                self._at += 1
                self._space(lines=True)
                start, n_rules = len(rule), 1
            elif c in "*+?{":
                n_rules = self._repeat(name, rule, start, n_rules, *self._times(lines=bool(outer)))
            else:
                n = len(rule)
                if not self._item(rule):
                    break
                start, n_rules = n, 1
                self._space(lines=bool(outer))
        if outer:
            raise self._wrong("expecting ')'")
        self._rules[rule_id] = rule

    def _item(self, rule: list[int]) -> bool:
        """A literal, a class, a token, a rule's name, or any character. False: it is none."""
        c = self._here()
        if c == '"':
            self._at += 1
            while self._here() != '"':
                self._char()
                rule.append(NO_RULE)
            self._at += 1
        elif c == "[":
            self._at += 1 + (self._here(2) == "[^")
            while self._here() != "]":
                self._char()
                rule.append(NO_RULE)
                if self._here() == "-" and self._here(2) != "-]":
                    self._at += 1
                    self._char()
                    rule.append(NO_RULE)
            self._at += 1
        elif c in "<!":
            self._at += c == "!"
            self._token()
            rule.append(NO_RULE)
        elif NAME.match(c):
            rule.append(self._id_of(self._name()))
        elif c == ".":
            self._at += 1
            rule.append(NO_RULE)
        else:
            return False
        return True

    def _token(self) -> None:
        begin = self._at
        self._expect("<")
        if self._here() == "[":
            self._at += 1
            self._number(bits=32)
            self._expect("]")
            self._expect(">")
            return
        if self._is_token is None:
            raise NeedsVocabulary
        end = self._text.find(">", self._at)
        if end < 0:
            raise self._wrong("expecting '>'", len(self._text))
        self._at = end + 1
        if not self._is_token(self._text[begin : self._at]):
            raise Wrong(f"invalid token '{self._text[begin : self._at]}'")

    def _times(self, *, lines: bool) -> tuple[int, int | None]:
        """How often, at least and at most; None: no limit."""
        mark = self._here()
        self._at += 1
        self._space(lines=lines)
        if mark != "{":
            return REPEATED[mark]
        least = self._number()
        self._space(lines=lines)
        most: int | None = least
        if self._here() == ",":
            self._at += 1
            self._space(lines=lines)
            most = None
            if INT.match(self._here()):
                most = self._number()
                self._space(lines=lines)
            self._expect("}")
        elif self._here() == "}":
            self._at += 1
        else:
            raise self._wrong("expecting ','")
        self._space(lines=lines)
        if least > N_REPEATED:
            raise Wrong(f"an item is repeated {least} times, {N_REPEATED} at most can be read")
        if most is not None and most < least:
            raise self._wrong(f"an item is repeated {least} times at least and {most} at most")
        return least, None if most is not None and most > N_REPEATED else most

    def _repeat(self, name: str, rule: list[int], start: int, n_rules: int, least: int, most: int | None) -> int:
        """Rewrites the last item as libllama does. Returns the rules that it is made of."""
        if start == len(rule):
            raise self._wrong("expecting preceding item to */+/?/{")
        item, n = rule[start:], most or least or 1
        if n_rules * n > N_REPEATED:
            raise Wrong(f"repetitions in each other make more than {N_REPEATED} rules")
        self._n_elements += len(item) * n
        if self._n_elements > N_ELEMENTS:
            raise Wrong(f"repetitions make {self._n_elements} elements, {N_ELEMENTS} at most can be read")
        if least == 0:
            del rule[start:]
        else:
            rule += item * (least - 1)
        last = NO_RULE
        for i in range(1 if most is None else most - least):
            rule_id = self._new_id(name)
            again = [rule_id if most is None else last] if i or most is None else []
            self._rules[rule_id] = [*item, *again, ALTERNATIVE]  # or nothing
            last = rule_id
        if last != NO_RULE:
            rule.append(last)
        return n_rules * n


def complaint(gbnf: str, is_token: Callable[[str], bool] | None) -> str:
    """What is wrong with the notation, on one line; empty: nothing.

    is_token: whether a text such as <think> is one token of the vocabulary; None: that cannot be said. Raises
    NeedsVocabulary where it must be. The grammar is one that `_core.grammar_too_large` lets pass.
    """
    try:
        _GrammarReader(gbnf, is_token).read()
    except Wrong as e:
        why = one_line(e, 200)
        return f"{why} its end" if why.endswith(" at") else why
    return ""
