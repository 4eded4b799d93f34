"""Repetitions in the grammar of a JSON schema. llama.cpp writes them out item by item, so they are bounded here."""

from __future__ import annotations

from typing import Any

from duo.errors import BadValueError
from duo.grammar.gbnf import N_REPEATED

N_BYTES = 1 << 20  # of a grammar that can be read (csrc/model/grammar_limits.cpp)
MARKS: dict[tuple[int, int | None], str] = {(0, 1): "?", (0, None): "*", (1, None): "+", (1, 1): ""}


def too_large() -> BadValueError:
    """The grammar of a schema has more than N_BYTES, or is nested too deeply."""
    return BadValueError(
        "the JSON schema (-j) makes a grammar that is too large; lower minLength, maxLength or maxItems, or simplify it"
    )


def is_unlimited(most: Any) -> bool:
    """Whether this maxLength or maxItems is not enforced: llama.cpp reads a larger maximum as none."""
    return isinstance(most, (int, float)) and most > N_REPEATED


def times(least: int, most: int | None) -> str:
    """The mark behind an item that is repeated; most: None is no limit. Raises BadValueError."""
    if max(least, most or 0) > N_REPEATED:
        raise too_large()
    if (least, most) in MARKS:
        return MARKS[least, most]
    return f"{{{least}}}" if least == most else f"{{{least},{most or ''}}}"


def count(x: Any) -> int:
    """Raises ValueError."""
    if isinstance(x, bool) or not isinstance(x, (int, float)) or x < 0 or x != int(x):
        raise ValueError(f"{x!r} is no count")
    return int(x)
