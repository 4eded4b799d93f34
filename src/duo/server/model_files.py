"""The files of the models. A client learns their names, and not where they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from duo import _core
from duo._libs import libraries

if TYPE_CHECKING:
    from duo.model import Duo


def files_of(duo: Duo) -> set[str]:
    """Models, their packed weights, adapters, control vectors and projectors, as they were given; and llama.cpp's
    libraries, which failures name as well."""
    placed = duo.placed
    found: list[str | bytes] = [
        placed.projector.path,
        placed.draft_projector.path,
        *map(str, libraries()),
        _core.__file__,
    ]
    for m in (placed.target, placed.draft):
        found += [m.path, m.packed[0], *(path for path, _scale in (*m.loras, *m.control_vectors))]
    return {os.fsdecode(path) for path in found if path}


def without_folders(sentence: str, files: Iterable[str]) -> str:
    """The sentence with the names of these files, and of others in their folders, in place of paths."""
    for path, name in sorted(_shorter(files), key=lambda pair: len(pair[0]), reverse=True):
        sentence = sentence.replace(path, name)
    return sentence


def _shorter(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in files:
        file = Path(path)
        yield path, file.name
        if file.is_absolute() and file.parent != Path(file.anchor):
            yield f"{file.parent}{os.sep}", ""  # another part of a split model
