"""The name that somebody meant who misspelt it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHORTEST = 4  # letters and hyphens of a beginning that says what is meant


def nearest(name: str, names: Iterable[str]) -> str | None:
    """One in other case, one that begins so, or the one with the fewest letters missing, wrong or swapped. None: none
    is close."""
    all_names = list(names)
    close = difflib.get_close_matches(name, all_names, 10, 0.7)
    begun = [x for x in all_names if len(name) >= SHORTEST and x.startswith(name)]
    return min(
        [*close, *begun],
        key=lambda x: (x.lower() != name.lower(), not x.startswith(name), distance(name, x)),
        default=None,
    )


def distance(a: str, b: str) -> int:
    """Letters that are missing, too many, wrong, or swapped with the next one."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row = [i + 1]
        for j, y in enumerate(b):
            n = min(last[j + 1] + 1, row[j] + 1, last[j] + (x != y))
            if i and j and x == b[j - 1] and y == a[i - 1]:
                n = min(n, before[j - 1] + 1)
            row.append(n)
        before, last = last, row
    return last[-1]
