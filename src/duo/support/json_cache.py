"""What was measured once and is kept between runs: a small JSON object in a file of the user's cache."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def recall(path: Path) -> dict[str, Any]:
    """All that the file holds; nothing if it is not there, or damaged."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(path: Path, key: str, value: Any, at_most: int | None = None) -> bool:
    """Adds or replaces one entry, as the newest; the oldest beyond `at_most` are dropped. Did it get there?

    A record that cannot be written is measured anew next time; of two processes at once the last one wins.
    """
    known = {k: v for k, v in recall(path).items() if k != key} | {key: value}
    kept = dict(list(known.items())[-at_most:]) if at_most is not None else known
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            new.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            os.replace(new, path)
    except OSError:
        return False
    return True
