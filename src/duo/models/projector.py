"""The projector of a target: the file that makes rows of pictures."""

from __future__ import annotations

import os
from pathlib import Path

from duo import _core
from duo.errors import BadValueError, UnknownModelError
from duo.models.beside import NO_MODEL
from duo.models.file_name import base_name
from duo.options.engine import EngineOptions

AUTO = "auto"


def see_with(o: EngineOptions, target: str | None, n_threads: int) -> _core.ProjectorOptions:
    """How the target sees. target: None if it is on another machine. Raises as projector_of, and BadValueError."""
    if o["mmproj"] is not None and target is None:
        raise BadValueError("--mmproj is for a target in this process, and it is on another machine; leave it out")
    found = None if target is None else projector_of(target, o["mmproj"])
    p = _core.ProjectorOptions()
    p.path = b"" if found is None else os.fsencode(found)
    p.offload, p.n_threads = o["mmproj_offload"], n_threads
    p.min_rows, p.max_rows = o["image_min_tokens"] or -1, o["image_max_tokens"] or -1
    return p


def projector_of(target: str, asked: str | None) -> str | None:
    """The file that --mmproj names, downloaded if it is a URL; auto: one beside the target, or None. Raises as
    Hub.fetch."""
    if asked is None:
        return None
    if asked == AUTO:
        found = beside(Path(target))
        return None if found is None else str(found)
    if is_url(asked):
        from duo.models.hub.repository import Hub
        from duo.models.hub.url_file import fetch_url

        return str(fetch_url(Hub(), asked))
    if not os.path.isfile(asked):
        raise UnknownModelError(f"there is no projector {asked!r} (--mmproj); check the path")
    return asked


def is_url(asked: str | None) -> bool:
    return asked is not None and "://" in asked


def is_projector(path: str | os.PathLike[str]) -> bool:
    """By its header, as libmtmd's clip.cpp knows one."""
    return _core.architecture_of(os.fsencode(path)) == "clip"


def beside(target: Path) -> Path | None:
    """The one file with mmproj in its name in the target's folder; of several the one that is named like the target."""
    try:
        files = sorted(
            p for p in target.parent.glob("*.gguf") if NO_MODEL in p.name.lower() and p != target and is_projector(p)
        )
    except OSError:
        return None
    if len(files) > 1:
        mine = base_name(target)
        files = [p for p in files if mine in p.name.lower()][:1]
    return files[0] if files else None
