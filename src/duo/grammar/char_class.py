"""Sets of characters, and how a JSON string writes them in a grammar (GBNF)."""

from __future__ import annotations

import json
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]  # code points, from and to, in order and apart

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
# What a JSON string cannot hold without an escape (RFC 8259, section 7), DEL as in llama.cpp, and halves of characters.
NOT_PLAIN: Ranges = ((0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\")), (0x7F, 0x7F), SURROGATES)
ESCAPES = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def ranges_of(characters: str) -> Ranges:
    return united((ord(c), ord(c)) for c in characters)


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    edges = [-1, *(edge for pair in ranges for edge in pair), LAST + 1]
    return tuple((low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 < high)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    return complement(united((*complement(ranges), *others)))


def contains(ranges: Ranges, c: str) -> bool:
    return any(low <= ord(c) <= high for low, high in ranges)


def written(ranges: Ranges) -> str:
    """A class, such as [a-z]."""
    return "[" + "".join(_char(low) + (f"-{_char(high)}" if high > low else "") for low, high in ranges) + "]"


def in_string(ranges: Ranges) -> list[str]:
    """Alternatives that write any one of these characters in a JSON string; control characters without a short escape
    are left out. Empty: there are none."""
    plain = without(ranges, NOT_PLAIN)
    escapes = "".join(letter for c, letter in ESCAPES.items() if contains(ranges, c))
    return ([written(plain)] if plain else []) + ([f'"\\\\" {written(ranges_of(escapes))}'] if escapes else [])


def _char(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def json_text(value: object) -> str:
    """JSON that is readable, and valid Unicode."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if any(0xD800 <= ord(c) < 0xE000 for c in text) else text


def literal(text: str) -> str:
    """A literal of a grammar. The text has no control characters: JSON escapes them."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
