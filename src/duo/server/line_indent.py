"""Where a text ends because a line of it stands too far left (llama-server's n_indent)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duo.generation.result import Chunk


class LineIndent:
    """Reads a text as it comes. Its first line may begin anywhere; each other one with n spaces or tabs at least."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._n_here: int | None = None  # spaces of the line so far; None: its text has begun

    def cut(self, chunks: Sequence[Chunk]) -> list[Chunk] | None:
        """The chunks as far as the text goes, with its end. None: it goes on. The spaces of the last line stay."""
        for i, chunk in enumerate(chunks):
            n = self._n_kept(chunk.text)
            if n is None:
                continue
            last = replace(chunk, text=chunk.text[:n], finish_reason="length" if chunk.token is None else None)
            end = [] if chunk.token is None else [Chunk("", finish_reason="length")]
            return [*chunks[:i], last, *end]
        return None

    def _n_kept(self, text: str) -> int | None:
        """Characters before the first one that stands too far left; None: there is none."""
        for i, c in enumerate(text):
            if self._n_here is not None:
                if c in " \t":
                    self._n_here += 1
                    continue
                if self._n_here < self._n:  # an empty line, too
                    return i
            self._n_here = 0 if c == "\n" else None
        return None
