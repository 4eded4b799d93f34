"""Measurements that are kept between runs: a small JSON object in a file of the user's cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from duo.support.atomic import write_whole


def recall(path: Path) -> dict[str, Any]:
    """All that the file holds; empty if it is missing or damaged."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(path: Path, key: str, value: Any, at_most: int | None = None) -> bool:
    """Adds or replaces one entry, as the newest, and drops the oldest beyond `at_most`. Returns whether it was written.

    A record that cannot be written is measured again next time. If two processes write at once, the last one wins.
    """
    known = {k: v for k, v in recall(path).items() if k != key} | {key: value}
    entries = dict(list(known.items())[-at_most:]) if at_most is not None else known
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(entries, indent=1).encode())
    except OSError:
        return False
    return True
