"""The demo target at the size of a real model. It is made once, in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from duo import __version__
from duo.errors import DoesNotFitError, DuoError
from duo.models.demo import demo_pair
from duo.support.cache_folder import cache_folder
from duo.support.wording import gigabytes

SIZE = 600_000_000  # bytes; four times as wide as the demo target, so that the logits are the same bits
SPARE = 50_000_000  # bytes of disk that stay free
PREFIX = "demo-target-600M-"
LEFT_S = 600.0  # a file that is being made is written to all the time


def demo_target_path() -> Path:
    """Where it is, or will be. The name changes with the version of duo and with the small target."""
    digest = hashlib.sha256(demo_pair()[0].read_bytes()).hexdigest()[:8]
    return cache_folder() / f"{PREFIX}{__version__}-{digest}.gguf"


def _clear(path: Path) -> None:
    """Removes files of other versions, and halves that a killed process has left. Raises OSError."""
    for old in path.parent.glob(f"{PREFIX}*.gguf"):
        if old != path:  # another process may have just made it
            old.unlink(missing_ok=True)
    for half in path.parent.glob(f".duo-*/{PREFIX}*.gguf"):
        with suppress(FileNotFoundError):
            if time.time() - half.stat().st_mtime > LEFT_S:
                shutil.rmtree(half.parent, ignore_errors=True)


def demo_target(progress: Callable[[str, int, int], None] | None = None) -> Path:
    """The widened demo target, which is made now if it is missing. Files of other versions are removed.

    progress: called with the name of a tensor, the bytes written so far and all bytes. Raises DuoError.
    """
    path = demo_target_path()
    if os.path.isfile(path):
        return path
    from duo.gguf_tools.widen import widen

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        free = shutil.disk_usage(path.parent).free
    except OSError as e:
        raise DuoError(f"the cache {path.parent} cannot be used ({e.strerror}); set XDG_CACHE_HOME to a folder") from e
    if free < SIZE + SPARE:
        raise DoesNotFitError(
            f"the widened demo target needs {gigabytes(SIZE)} in {path.parent} and {gigabytes(free)} are free; free "
            "some space, set XDG_CACHE_HOME to another folder, or name models of your own (-m, -md)"
        )
    widen(demo_pair()[0], path, size=SIZE, progress=progress)
    return path
