"""Texts that a grammar (GBNF) allows: whether one is such a text, and random ones."""

import random
import re
from typing import Any

TOKEN = re.compile(
    r'\s*(?:(::=)|([a-zA-Z0-9-]+)|("(?:\\.|[^"\\])*")|(\[(?:\\.|[^\]\\])*\])|(\{\d+,?\d*\})|([()|*+?]))', re.S
)
CHAR = re.compile(r"\\x(..)|\\u(.{4})|\\U(.{8})|\\(.)|(.)", re.S)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _characters(text: str) -> list[str]:
    found = []
    for m in CHAR.finditer(text):
        code = m[1] or m[2] or m[3]
        found.append(chr(int(code, 16)) if code else ESCAPES.get(m[4], m[4]) if m[4] else m[5])
    return found


def _class(text: str) -> Any:
    inner = text[1:-1]
    negated = inner.startswith("^")
    ranges, parts = [], list(CHAR.finditer(inner[negated:]))
    while parts:
        low = _characters(parts.pop(0)[0])[0]
        if len(parts) > 1 and parts[0][0] == "-":
            ranges.append((low, _characters(parts[1][0])[0]))
            del parts[:2]
        else:
            ranges.append((low, low))
    return ("class", negated, tuple(ranges))


class Grammar:
    def __init__(self, gbnf: str) -> None:
        self.rules: dict[str, Any] = {}
        for line in gbnf.splitlines():
            name, body = line.split(" ::= ", 1)
            self.tokens = list(TOKEN.finditer(body))
            assert "".join(m[0] for m in self.tokens).strip() == body.strip(), body
            self.rules[name] = self._choice()
            assert not self.tokens, body

    def _choice(self) -> Any:
        options = [self._sequence()]
        while self.tokens and self.tokens[0][6] == "|":
            self.tokens.pop(0)
            options.append(self._sequence())
        return ("choice", options)

    def _sequence(self) -> Any:
        items: list[Any] = []
        while self.tokens and self.tokens[0][6] not in ("|", ")"):
            m = self.tokens.pop(0)
            if m[2]:
                items.append(("rule", m[2]))
            elif m[3]:
                items.append(("text", "".join(_characters(m[3][1:-1]))))
            elif m[4]:
                items.append(_class(m[4]))
            elif m[6] == "(":
                items.append(self._choice())
                assert self.tokens.pop(0)[6] == ")"
            elif m[5]:
                least, comma, most = m[5][1:-1].partition(",")
                items[-1] = ("repeat", items[-1], int(least), int(most) if most else None if comma else int(least))
            else:
                items[-1] = ("repeat", items[-1], int(m[6] == "+"), 1 if m[6] == "?" else None)
        return ("sequence", items)

    def allows(self, text: str) -> bool:
        self.text, self.known = text, {}
        return len(text) in self._ends(("rule", "root"), 0)

    def _ends(self, node: Any, at: int) -> set[int]:
        """Where a part of the text that begins there and follows the node may end."""
        kind = node[0]
        if kind == "text":
            return {at + len(node[1])} if self.text.startswith(node[1], at) else set()
        if kind == "class":
            if at == len(self.text):
                return set()
            return {at + 1} if node[1] != any(low <= self.text[at] <= high for low, high in node[2]) else set()
        key = (id(node) if kind != "rule" else node[1], at)
        if key not in self.known:
            self.known[key] = self._inner_ends(node, at)
        return self.known[key]

    def _inner_ends(self, node: Any, at: int) -> set[int]:
        kind = node[0]
        if kind == "rule":
            return self._ends(self.rules[node[1]], at)
        if kind == "choice":
            return set().union(*(self._ends(x, at) for x in node[1]))
        here = {at}
        if kind == "sequence":
            for x in node[1]:
                here = set().union(*(self._ends(x, i) for i in here))
            return here
        _, item, least, most = node
        found, n = set(here) if least == 0 else set(), 0
        while here and (most is None or n < most):
            n += 1
            here = set().union(*(self._ends(item, i) for i in here)) - (found if n > least else set())
            found |= here if n >= least else set()
        return found

    def random_text(self, r: random.Random) -> str:
        return self._random(("rule", "root"), r, 0)

    def _random(self, node: Any, r: random.Random, depth: int) -> str:
        kind = node[0]
        if kind == "text":
            return str(node[1])
        if kind == "class":
            if not node[1]:
                low, high = r.choice(node[2])
                return chr(r.randint(ord(low), min(ord(high), ord(low) + 99)))
            common = 'abxyz019 -_.:/@"\\$^{}é\n'
            return r.choice([c for c in common if not any(low <= c <= high for low, high in node[2])])
        if kind == "rule":
            return self._random(self.rules[node[1]], r, depth + 1)
        if kind == "choice":
            options = node[1]
            if depth > 25:  # the last ones of a value are the short ones
                options = options[-1:]
            return self._random(r.choice(options), r, depth)
        if kind == "sequence":
            return "".join(self._random(x, r, depth) for x in node[1])
        _, item, least, most = node
        more = 0 if depth > 12 else r.choice([0, 0, 1, 2, 5])
        n = least + (more if most is None else min(more, most - least))
        return "".join(self._random(item, r, depth) for _ in range(n))
