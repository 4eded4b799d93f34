"""A conversation as a file (`duo chat -o`), in the form of llama-cli (tools/cli/cli-context.cpp)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from duo.errors import BadValueError

if TYPE_CHECKING:
    from duo.chat.reading import Part


class Transcript:
    """Replaces the file. Each turn is there as soon as it has ended. Raises BadValueError: it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("w", encoding="utf-8", errors="replace")
        except OSError as e:
            raise self._fault(e) from None

    def add_question(self, question: str) -> None:
        self._write(f"User:\n{question}\n\n")

    def add_answer(self, text: str, part: Part | None) -> None:
        """text: what the model wrote. part: its thoughts and its answer, if they are told apart."""
        thoughts = (
            "" if part is None or not part.reasoning else f"[Start thinking]\n\n{part.reasoning}[End thinking]\n\n"
        )
        content = text if part is None else part.content
        self._write(f"Assistant:\n{thoughts}{content.rstrip()}\n\n")

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as e:
            raise self._fault(e) from None

    def _fault(self, e: OSError) -> BadValueError:
        return BadValueError(f"{self._path} (-o) cannot be written ({e.strerror or e}); choose another file")

    def close(self) -> None:
        with suppress(OSError):  # the user was told what could not be written
            self._file.close()
