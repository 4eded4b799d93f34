"""The draft that a list of pairs has for a target: in the hub's cache or on this disk, or to be downloaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from duo.errors import DuoError
from duo.models.file_name import base_name
from duo.models.hub.repository import Hub
from duo.models.pairs import Entry, entries, path_of


class Listed(NamedTuple):
    """pair: its name. path: the draft's file; None: the options would download it."""

    pair: str
    path: Path | None
    options: str


def listed(target: Path) -> list[Listed]:
    """The drafts of all pairs with this target, those that are here first. A broken list has none: the commands that
    need it report what is wrong."""
    try:
        known = [e for e in entries().values() if _is(e, target)]
    except DuoError:
        return []
    return sorted((_draft(e) for e in known), key=lambda x: x.path is None)


def _is(e: Entry, target: Path) -> bool:
    """By the name of the file, whatever its quantisation, or by that of the repository. The demo target is not meant:
    who names its file wants it alone."""
    model = e.pair.target
    if model.repo is None:
        try:
            return e.own and path_of(model, e.folder, Hub().fetch).samefile(target)
        except OSError:
            return False
    name = model.file or f"{model.repo.partition('/')[2].removesuffix('-GGUF')}.gguf"
    return base_name(Path(name)) == base_name(target)


def _draft(e: Entry) -> Listed:
    ref = e.pair.draft
    options = f"-hfd {ref.repo}{f':{ref.quant}' if ref.quant else ''}{f' -hffd {ref.file}' if ref.file else ''}"
    try:
        path = path_of(ref, e.folder, replace(Hub(), offline=True).fetch)
    except DuoError:
        return Listed(e.pair.name, None, options)
    return Listed(e.pair.name, path if path.is_file() else None, options if ref.repo else "")
