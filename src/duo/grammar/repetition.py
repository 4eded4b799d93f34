"""Repetitions in the grammar of a JSON schema. The converter writes them out item by item, so they are bounded here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duo.errors import BadValueError
from duo.grammar.gbnf import N_REPEATED

N_BYTES = 1 << 20  # of a grammar that can be read (csrc/model/grammar_limits.cpp)


def too_large() -> BadValueError:
    """The grammar of a schema has more than N_BYTES, or is nested too deeply."""
    return BadValueError(
        "the JSON schema (-j) makes a grammar that is too large; lower minLength, maxLength or maxItems"
    )


def is_unlimited(most: Any) -> bool:
    """Whether this maxLength or maxItems is not enforced: llama.cpp reads a larger maximum as none."""
    return isinstance(most, (int, float)) and most > N_REPEATED


def bounded(build: Callable[..., str]) -> Callable[..., str]:
    """The converter's `_build_repetition`, which raises BadValueError or ValueError before it writes too much."""

    def repetition(item: str, least: Any, most: Any, separator_rule: str | None = None, **options: Any) -> str:
        least, most = _count(least), None if most is None or is_unlimited(most) else _count(most)
        if most is not None and most < least:
            raise ValueError(f"{least} items at least and {most} at most")
        n = max(least, most or 1)
        if n > N_REPEATED or n * (len(item) + len(separator_rule or "") + len("( )?")) > N_BYTES:
            raise too_large()
        return build(item, least, most, separator_rule, **options)

    return repetition


def _count(x: Any) -> int:
    """Raises ValueError."""
    if isinstance(x, bool) or not isinstance(x, (int, float)) or x < 0 or x != int(x):
        raise ValueError(f"{x!r} is no count")
    return int(x)
