"""The trace file of a loaded pair, open as long as the pair is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from duo import _core
from duo.errors import BadValueError, DuoError
from duo.generation.trace_writer import Event, TraceWriter


class TraceFile:
    """The Chrome trace of a session. A failure to write it ends the trace, never a text."""

    wanted = True  # a file has room for all events

    def __init__(self, path: str | os.PathLike[str], target: str, draft: str | None) -> None:
        """Raises BadValueError if the file cannot be opened."""
        self._path = Path(path)
        self._writer: TraceWriter | None = None
        try:
            self._writer = TraceWriter(self._path, target=target, draft=draft)
        except (OSError, ValueError) as e:
            raise BadValueError(self._sentence(e)) from None

    def add(self, events: Sequence[Event], network: dict[str, Any]) -> None:
        """Writes events, and the figures of the connection. Raises DuoError."""
        if self._writer is None:
            return
        try:
            self._writer.add(events)
            if network:
                self._writer.network(_core.now_us(), network)
        except OSError as e:
            writer, self._writer = self._writer, None
            with suppress(OSError):
                writer.close()
            raise DuoError(self._sentence(e)) from None

    def close(self) -> None:
        """Safe to call twice. Raises DuoError if the end cannot be written."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        except OSError as e:
            raise DuoError(self._sentence(e)) from None

    def _sentence(self, e: OSError | ValueError) -> str:
        why = getattr(e, "strerror", None) or str(e)
        return f"the trace file {self._path} cannot be written ({why}); choose another"
