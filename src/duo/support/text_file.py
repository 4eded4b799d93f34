"""Text files that a user names."""

from __future__ import annotations

import os
from pathlib import Path

from duo.errors import BadValueError


def text_of(path: Path, what: str) -> str:
    """The text of a file. Raises BadValueError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as e:
        name = os.fsencode(path).decode("utf-8", "replace")
        if isinstance(e, UnicodeDecodeError):
            raise BadValueError(f"the {what} {name} is not UTF-8 (byte {e.start}); convert it") from None
        raise BadValueError(f"the {what} {name} cannot be read ({getattr(e, 'strerror', e)}); check the path") from None
