"""JSON as UTF-8, as answers have it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

# What is encoded in one go, in values: Python's encoder keeps all other threads waiting meanwhile (some milliseconds).
N_AT_ONCE = 1 << 12
DEPTH = 16  # of answers; a schema of the client's that is nested more deeply counts as one value
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumped(data: Any) -> bytes:
    """What is no Unicode becomes a question mark.

    A large value is encoded in slices: in a thread, so that the event loop goes on between them.
    """
    text = ENCODER.encode(data) if size_of(data) <= N_AT_ONCE else "".join(_slices(data))
    return text.encode("utf-8", "replace")


def size_of(data: Any, depth: int = DEPTH) -> int:
    """About how many values it has. Of a list the first, the middle and the last item stand for all."""
    if not depth or not data:
        return 1
    if isinstance(data, dict):
        return len(data) + sum(size_of(v, depth - 1) for v in data.values() if isinstance(v, dict | list | tuple))
    if isinstance(data, list | tuple):
        return len(data) * (1 + max(size_of(data[i], depth - 1) for i in {0, len(data) // 2, len(data) - 1}))
    return 1


def _slices(data: Any) -> Iterator[str]:
    """The JSON of a value that is too large to be encoded at once."""
    size = size_of(data)
    if size <= N_AT_ONCE:
        yield ENCODER.encode(data)
    elif isinstance(data, dict):
        mark = "{"
        for name, value in data.items():
            yield mark + ENCODER.encode({name: 0})[1:-2]
            yield from _slices(value)
            mark = ","
        yield "}"
    else:
        n_items = max(1, N_AT_ONCE * len(data) // size)
        mark = "["
        for i in range(0, len(data), n_items):
            yield mark
            if n_items == 1:
                yield from _slices(data[i])
            else:
                yield ENCODER.encode(data[i : i + n_items])[1:-1]
            mark = ","
        yield "]"
