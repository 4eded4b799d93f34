"""A disk that is full."""

from __future__ import annotations

import errno

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(e: OSError) -> bool:
    """Whether a disk or a quota is full. NumPy's error of an array that was written in part has no number."""
    return e.errno in FULL or e.errno is None
