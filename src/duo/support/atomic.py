"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a new file to. The new file takes the place of `path` when the block ends without an exception.

    A link stays a link, and the file keeps its permissions. Raises OSError.
    """
    import shutil
    import tempfile

    real = Path(os.path.realpath(path))
    # In a folder of its own: unlike mkstemp's, its permissions are those that the user's umask gives.
    with tempfile.TemporaryDirectory(prefix=".duo-", dir=real.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder) / real.name
        yield fresh
        if real.exists():
            shutil.copymode(real, fresh)
        os.replace(fresh, real)


def write_whole(path: Path, data: bytes) -> None:
    """Replaces the file, or leaves the old one as it is. A pipe or a terminal is written to. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with replacing(path) as fresh:
        fresh.write_bytes(data)
