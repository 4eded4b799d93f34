"""Folders below the user's home."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from duo.errors import BadValueError

# Where a user without a home keeps things: below a file, so that no folder can be made. Nothing is kept then.
NOWHERE = Path(os.devnull, "no-home")


def expanded(path: str) -> Path:
    """The path with ~ replaced by the home folder. Raises BadValueError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadValueError(f"{path} begins with an unknown home folder; write the whole path") from None


def below_home(place: Callable[[], Path]) -> Path:
    """What platformdirs says. Where the home is unknown, some releases raise RuntimeError, and others leave a ~."""
    try:
        folder = Path(os.path.expanduser(place()))
    except RuntimeError:
        return NOWHERE
    return NOWHERE if str(folder).startswith("~") else folder
