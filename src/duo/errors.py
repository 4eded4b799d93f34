"""What can go wrong, as exceptions whose text is one sentence: what was wrong and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duo.text.result import Result


class DuoError(Exception):
    """A user's mistake or a failed model. `result` holds what was generated before, if anything was."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result
