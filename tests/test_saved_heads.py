"""Heads of files with saved caches: a checksum finds damage, but what it covers may still be nonsense."""

import hashlib
import io
import json
from typing import Any

import pytest

from duo.generation.state import MAGIC, BadStateError, read_heads

GOOD: dict[str, Any] = {
    "role": "target", "belongs": {"model": "m"}, "tokens": [1, 2], "n_bytes": 3, "sha256": "s",
}  # fmt: skip


def read(head: object, caches: bytes = b"abc") -> Any:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    whole = MAGIC + len(text).to_bytes(8, "little") + text + hashlib.sha256(text).digest() + caches
    return read_heads(io.BytesIO(whole), len(whole))


def test_a_head_is_read() -> None:
    (found,) = read([GOOD])
    assert (found.role, found.belongs, found.tokens, found.n_bytes) == ("target", {"model": "m"}, (1, 2), 3)


@pytest.mark.parametrize("head", [
    b"", b"\xff", b"[" * 100_000, None, 5, "text", {"a": 1}, [], [1], [[]], [{}], [{**GOOD, "more": 1}],
    *([{**GOOD, name: value}] for name, value in (
        ("role", ["target"]), ("role", "draft"), ("belongs", None), ("belongs", []), ("belongs", {"model": 1}),
        ("tokens", 1), ("tokens", ["a"]), ("tokens", [[1]]), ("tokens", [-1]), ("tokens", [True]), ("n_bytes", "3"),
        ("n_bytes", -3), ("n_bytes", 2), ("n_bytes", None), ("sha256", 1),
    )),
], ids=lambda head: str(head)[:60])  # fmt: skip
def test_nonsense_is_refused_in_one_way(head: object) -> None:
    with pytest.raises(BadStateError):
        read(head)
