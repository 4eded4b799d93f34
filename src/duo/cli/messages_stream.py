"""Standard error for a program whose text must not be lost because messages cannot be written."""

import io
import sys
from typing import Any

from duo.support.full_disk import FULL


class _Lossy(io.FileIO):
    """What does not fit on a full disk is left out."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as e:
            if e.errno not in FULL:
                raise
            return len(memoryview(data).cast("B"))


def ignore_a_full_disk() -> None:
    """From now on, messages for standard error that cannot be written because the disk is full are left out."""
    old = sys.stderr
    if isinstance(old, io.TextIOWrapper) and isinstance(old.buffer, (io.BufferedWriter, io.FileIO)):
        raw = _Lossy(old.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), old.encoding, old.errors, line_buffering=True)
