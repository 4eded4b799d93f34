"""Texts of several lines in `duo chat`: a fence begins and ends one."""

from __future__ import annotations

FENCE = '"""'


def _fenced_lines(text: str) -> list[str] | None:
    """The lines behind an opening fence; None: the text does not start with one."""
    start = text.lstrip()
    return start.removeprefix(FENCE).split("\n") if start.startswith(FENCE) else None


def _closing(lines: list[str]) -> int | None:
    """The line that ends with the closing fence."""
    return next((i for i, line in enumerate(lines) if line.rstrip().endswith(FENCE)), None)


def is_open(text: str) -> bool:
    """The text starts with a fence, and no line closes it."""
    lines = _fenced_lines(text)
    return lines is not None and _closing(lines) is None


def without_fences(text: str) -> str | None:
    """The text between the fences. None: the text has no fences, or goes on behind the closing fence."""
    lines = _fenced_lines(text)
    if lines is None:
        return None
    end = _closing(lines)
    if end is None:  # the input has ended
        return "\n".join(lines).strip("\n")
    if any(line.strip() for line in lines[end + 1 :]):
        return None
    return "\n".join([*lines[:end], lines[end].rstrip().removesuffix(FENCE)]).strip("\n")
