"""Files with a JSON value on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duo.errors import BadValue


def values(file: Path, what: str, line: str) -> Iterator[tuple[int, str, Any]]:
    """(number, place in words, value) of each line that is not blank.

    what: the file in messages, such as "question file". line: what a line should be. Raises BadValue.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as e:
        raise BadValue(f"the {what} {file} cannot be read ({e.strerror}); check the path") from None
    except UnicodeDecodeError as e:
        raise BadValue(f"the {what} {file} is not UTF-8 (byte {e.start}); convert it") from None
    # Not splitlines(): it splits at U+2028, which a JSON string may contain.
    for n, found in enumerate(text.split("\n"), 1):
        if not found.strip():
            continue
        where = f"line {n} of {file}"
        try:
            value = json.loads(found)
        except (ValueError, RecursionError) as e:
            raise BadValue(f"{where} is not JSON ({getattr(e, 'msg', e)}); write {line}") from None
        yield n, where, value
