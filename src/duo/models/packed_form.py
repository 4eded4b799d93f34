"""Models whose file duo pack has written: what duo reads in place of the model's own file."""

from __future__ import annotations

import os

from duo import _core
from duo.errors import BadValueError


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether duo pack has written a file. False: nobody can read it."""
    return _core.is_packed_file(os.fsencode(path))


def refuse_packed(path: str | os.PathLike[str], what: str) -> None:
    """what: needs the model's own file. Raises BadValueError: the file is a packed one."""
    if is_packed(path):
        raise BadValueError(
            f"{what} cannot read the packed file {os.fspath(path)}; make the model's file again: duo pack --unpack"
        )
