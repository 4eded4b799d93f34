"""The processes that use a folder, so that what a killed one left in it can be told from what a living one writes."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LOCK = "lock"  # a file that all users of the folder hold, as long as they live


class FolderUser:
    """One user of a folder, as long as this object lives."""

    def __init__(self, path: Path, if_alone: Callable[[], None]) -> None:
        """if_alone: called if nobody else uses the folder, who also waits until it returns. Raises OSError."""
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        weakref.finalize(self, os.close, fd)
        if sys.platform == "win32":  # nothing is known of others
            return
        with suppress(OSError):  # somebody uses it, or the file system has no locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if_alone()
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH)
