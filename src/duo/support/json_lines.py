"""Files with a JSON value on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duo.errors import BadValueError
from duo.support.text_file import text_of


def values(file: Path, what: str, line: str) -> Iterator[tuple[int, str, Any]]:
    """(number, place in words, value) of each line that is not blank.

    what: the file in messages, such as "question file". line: what a line should be. Raises BadValueError.
    """
    text = text_of(file, what)
    # Not splitlines(): it splits at U+2028, which a JSON string may contain.
    for n, text_line in enumerate(text.split("\n"), 1):
        if not text_line.strip():
            continue
        where = f"line {n} of {file}"
        try:
            value = json.loads(text_line)
        except (ValueError, RecursionError) as e:
            raise BadValueError(f"{where} is not JSON ({getattr(e, 'msg', e)}); write {line}") from None
        yield n, where, value
