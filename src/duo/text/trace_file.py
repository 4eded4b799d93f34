"""The trace file of a loaded pair, open as long as the pair is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from duo import _core
from duo.errors import BadValue, DuoError
from duo.text.trace_writer import Event, TraceWriter


class TraceFile:
    """The Chrome trace of a session. A failure to write it ends the trace, never a text."""

    def __init__(self, path: str | os.PathLike[str], target: str, draft: str | None) -> None:
        """Raises BadValue if the file cannot be opened."""
        self._path = Path(path)
        self._writer: TraceWriter | None = None
        try:
            self._writer = TraceWriter(self._path, target=target, draft=draft)
        except (OSError, ValueError) as e:
            raise BadValue(self._sentence(e)) from None

    def add(self, engine: _core.Engine, network: dict[str, Any]) -> None:
        """Writes what the workers have recorded, and the figures of the connection. Raises DuoError."""
        if self._writer is None:
            return
        events = (
            Event(
                kind=kind, lane=lane, t0_us=t0, t1_us=t1, slot=slot, n_rows=rows,
                n_accepted=accepted, n_drafted=drafted, hit=hit, depth=depth,
                n_branch=branch, expected=expected, stance=stance if kind == "verify" else "",
            )
            for kind, lane, t0, t1, slot, rows, accepted, drafted, hit, depth, branch, expected, stance
            in engine.take_trace()
        )  # fmt: skip
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
