"""How much of their prompts the models have read, for requests that want to be told (return_progress)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duo.server.text import ServedText

LOOK_S = 0.05
PromptProgress = dict[str, int]  # llama-server's prompt_progress: total, cache, processed (tokens), time_ms


class Progress:
    """cells: tokens in the target's cache, by slot; none: it is elsewhere, and only the end of a prompt is told."""

    def __init__(self, cells: Callable[[], Sequence[int]]) -> None:
        self._cells = cells
        self._seen: dict[int, int] = {}  # tokens in the slot when the text was first looked at, by text
        self._n_reported: dict[int, int] = {}  # tokens of the prompt, as last told to the client, by text

    def news(self, text: ServedText) -> list[PromptProgress]:
        """What has happened since the last call, while the prompt is read. The first one tells what was kept."""
        slot = -1 if text.stream is None else text.stream.stream.slot
        cells = self._cells()
        if text.chunks or not 0 <= slot < len(cells):
            return []
        n = cells[slot]
        # Until the first pass ends, the slot holds what an earlier text has left there.
        if n == self._seen.setdefault(text.index, n) and text.index not in self._n_reported:
            return []
        return self._tell(text, min(n, text.n_prompt))

    def end(self, text: ServedText) -> list[PromptProgress]:
        """When the text's first token has come: the whole prompt has been read."""
        return self._tell(text, text.n_prompt)

    def _tell(self, text: ServedText, n: int) -> list[PromptProgress]:
        n_cached = 0 if text.stream is None else text.stream.stream.n_cached
        n_reported = self._n_reported.get(text.index)
        fresh = sorted({n_cached, n}) if n_reported is None else [n] if n > n_reported else []
        if fresh:
            self._n_reported[text.index] = fresh[-1]
        ms = int((time.monotonic() - text.begun_at) * 1e3)
        return [{"total": text.n_prompt, "cache": n_cached, "processed": x, "time_ms": ms} for x in fresh]
