"""Lists as people write them in one argument."""

from __future__ import annotations


def comma_separated(text: str | None) -> list[str]:
    """ "a, b,," -> ["a", "b"]."""
    return [part for part in map(str.strip, (text or "").split(",")) if part]
