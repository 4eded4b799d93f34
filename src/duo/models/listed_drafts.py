"""The drafts that a list of pairs has for a target: in the hub's cache, on this disk, or to be downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from duo.errors import DuoError
from duo.models.file_name import base_name
from duo.models.hub.repository import Hub
from duo.models.pairs import Entry, entries, local_path, path_of

GENERIC = "ggml-model"  # files of many models have this name


class ListedDraft(NamedTuple):
    """pair: its name. path: the draft's file; None: the options would download it."""

    pair: str
    path: Path | None
    options: str = ""


def listed(target: Path) -> list[ListedDraft]:
    """The drafts of all pairs with this target, the smallest of those that are here first. What is wrong with a list or
    a cache is reported by the commands that need it."""
    try:
        pairs = list(entries().values())
    except DuoError:
        return []
    drafts = [draft for e in pairs if (draft := _draft(e, target)) is not None]
    return sorted(drafts, key=lambda x: (x.path is None, x.path.stat().st_size if x.path is not None else 0))


def _draft(e: Entry, target: Path) -> ListedDraft | None:
    ref, path = e.pair.draft, None
    if ref is None:
        return None
    try:
        if not _is(e, target):
            return None
        hub = Hub(token=None, offline=True)
        if ref.repo is None or hub.has(ref.repo):
            path = path_of(ref, e.folder, hub.fetch, e.pair.head)
    except (DuoError, OSError, ValueError):
        pass
    if path is not None and os.path.isfile(path):
        return ListedDraft(e.pair.name, path)
    if ref.repo is None:
        return None
    quant, file = f":{ref.quant}" if ref.quant else "", f" -hffd {ref.file}" if ref.file else ""
    return ListedDraft(e.pair.name, None, f"-hfd {ref.repo}{quant}{file}")


def _is(e: Entry, target: Path) -> bool:
    """Whether the target is that of this pair: by the name of the file, whatever its quantisation, or by that of the
    repository. Never for the demo target: a user who names its file wants it alone."""
    model, base = e.pair.target, base_name(target)
    if model.repo is None:
        return e.own and local_path(model, e.folder).samefile(target)
    names = {base_name(Path(f"{model.repo.partition('/')[2].lower().removesuffix('-gguf')}.gguf"))}
    if model.file is not None and not set("*?[") & set(model.file):
        names.add(base_name(Path(model.file)))
    return base in names and not base.startswith(GENERIC)
