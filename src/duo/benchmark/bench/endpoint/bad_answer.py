"""What is raised for an answer that has another status than 200, or is not what was asked for."""

from __future__ import annotations

from duo.errors import BadValueError

LACKS = (400, 404, 422, 501)  # the server does not have what was asked for


class BadAnswerError(BadValueError):
    """A server's answer that is not what was asked for. status: of HTTP (pickle sets it later)."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def lacks(self) -> bool:
        """Whether the server says that it has no such thing, and not that it failed."""
        return self.status in LACKS
