"""Server-sent events (WHATWG HTML, "Parsing an event stream"), as far as servers with OpenAI's routes send them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a \r that came last may be half of \r\n
_BOM = b"\xef\xbb\xbf"
N_LINE = 16 << 20  # bytes of a line that has not ended, at most


class EventReader:
    """Takes a stream in pieces of any size."""

    def __init__(self) -> None:
        self._rest, self._begun = b"", False
        self._name, self._data = b"", list[bytes]()

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """The name (empty: it has none) and the data of each event that is whole now. Comments are left out.

        Raises ValueError: a line is longer than N_LINE, or is not UTF-8.
        """
        rest = self._rest + piece
        if not self._begun and len(rest) >= len(_BOM):
            rest, self._begun = rest.removeprefix(_BOM), True
        *lines, self._rest = _LINE_END.split(rest) if self._begun else [rest]
        if len(self._rest) > N_LINE:
            raise ValueError(f"a line has more than {N_LINE} bytes")
        for line in lines:
            yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[tuple[str, str]]:
        if not line:
            if self._data:
                yield self._name.decode(), b"\n".join(self._data).decode()
            self._name, self._data = b"", []
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
