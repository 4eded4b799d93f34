"""The projectors of the models: the files that make rows of pictures."""

from __future__ import annotations

import os
from pathlib import Path

from duo import _core
from duo.errors import BadValueError, UnknownModelError
from duo.models.beside import NO_MODEL
from duo.models.file_name import base_name
from duo.models.hub import head_files
from duo.options.engine import EngineOptions
from duo.options.model import Role

AUTO = "auto"


def see_with(o: EngineOptions, role: Role, model: str | None, n_threads: int, device: str) -> _core.ProjectorOptions:
    """How the target sees, or the draft. model: None if it is on another machine, or there is none. device: encodes
    pictures; none: the CPU; empty: the first GPU. Raises as projector_of, and BadValueError."""
    flag, asked = ("--mmproj", o["mmproj"]) if role == "target" else ("--mmproj-draft", o["mmproj_draft"])
    if asked is not None and model is None:
        raise BadValueError(f"{flag} is for a {role} model in this process, and there is none; leave it out")
    found = None if model is None else projector_of(model, asked, flag)
    p = _core.ProjectorOptions()
    p.path = b"" if found is None else os.fsencode(found)
    p.offload, p.n_threads = o["mmproj_offload"] and device != "none", n_threads
    p.device = device if p.offload else ""
    p.min_rows, p.max_rows = o["image_min_tokens"] or -1, o["image_max_tokens"] or -1
    return p


def projector_of(model: str, asked: str | None, flag: str = "--mmproj") -> str | None:
    """The file that the flag names, downloaded if it is a URL; auto: one beside the model, or None. Raises as
    Hub.fetch."""
    if asked is None:
        return None
    if asked == AUTO:
        found = beside(Path(model))
        return None if found is None else str(found)
    if is_url(asked):
        from duo.models.hub.repository import Hub
        from duo.models.hub.url_file import fetch_url

        return str(fetch_url(Hub(), asked))
    if not os.path.isfile(asked):
        raise UnknownModelError(f"there is no projector {asked!r} ({flag}); check the path")
    return asked


def local_projector(model: str, asked: str | None) -> str | None:
    """The file of projector_of, if it is on this machine; nothing is downloaded."""
    if asked == AUTO:
        return projector_of(model, asked)
    return asked if asked is not None and os.path.isfile(asked) else None


def with_projectors(o: EngineOptions, target: str | None, draft: str | None) -> EngineOptions:
    """The options with the files of the projectors, so that their size is known before the models are placed. target,
    draft: the models' files; None: not in this process. Raises as projector_of."""
    if target is not None:
        o = {**o, "mmproj": projector_of(target, o["mmproj"])}
    if draft is not None:
        o = {**o, "mmproj_draft": projector_of(draft, o["mmproj_draft"], "--mmproj-draft")}
    return o


def is_url(asked: str | None) -> bool:
    return asked is not None and "://" in asked


def is_projector(path: str | os.PathLike[str]) -> bool:
    """By its header, as libmtmd's clip.cpp knows one."""
    return _core.architecture_of(os.fsencode(path)) == "clip"


def beside(model: Path) -> Path | None:
    """The one file with mmproj in its name in the model's folder; of several the one that is named like the model, or,
    if they differ in their types alone, the one that comes with the model from the hub."""
    try:
        files = sorted(
            p for p in model.parent.glob("*.gguf") if NO_MODEL in p.name.lower() and p != model and is_projector(p)
        )
    except OSError:
        return None
    if len(files) > 1:
        mine, kinds = base_name(model), {base_name(p) for p in files}
        files = [p for p in files if mine in p.name.lower()] or (files if len(kinds) == 1 else [])
    names = [p.name for p in files]
    found = head_files.find(names, (head_files.PROJECTOR,), model.name, None) or next(iter(names), None)
    return None if found is None else model.with_name(found)
