"""The draft that a target brings along: MTP layers of its own, a file beside it, or the other half of a known pair."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from duo.errors import DuoError
from duo.models.file_name import base_name
from duo.models.head import Head, refused_layers
from duo.models.header import Header, read_header

# llama.cpp's common/preset.cpp: beside a model in its own folder, such a file is its draft.
PREFIXES = ("mtp-", "dspark-", "dflash-", "eagle3-", "draft-")
NO_MODEL = "mmproj"
_KINDS = tuple(prefix.strip("-") for prefix in PREFIXES)


class DraftSource(NamedTuple):
    """own: the target's MTP layers. path: another file, or None; where: where it is. why_not: why a file beside the
    target is not used. tip: options that would download a draft. refused: why the target's own MTP layers do not draft,
    if nothing else does."""

    own: bool = False
    path: str | None = None
    where: str = "lies beside the target"
    why_not: str = ""
    tip: str = ""
    refused: str = ""


def find(target: str) -> DraftSource:
    """The draft for a target whose user names none. Raises DuoError as `read_header`."""
    from duo import _core

    if not os.path.isfile(target):
        return DraftSource()  # loading will report it
    header = read_header(target)
    if header.n_mtp and header.has_trunk and _core.runs_mtp(header.architecture):
        return DraftSource(own=True)
    why_not = ""
    for path in _named_like(Path(target)):
        why_not = _why_not(path, target, header)
        if not why_not:
            return DraftSource(path=str(path))
    from duo.models.listed_drafts import listed  # imported late: it needs what reads YAML

    tip = ""
    for draft in listed(Path(target)):
        if draft.path is None:
            tip = tip or draft.options
        elif not _why_not(draft.path, target, header):
            return DraftSource(path=str(draft.path), where=f"is the draft of this target in the pair {draft.pair}")
    return DraftSource(why_not=why_not, tip=tip, refused=refused_layers(header))


def _why_not(draft: Path, target: str, header: Header) -> str:
    """Why this file cannot or should not draft for a target with this header; empty if it can."""
    from duo import _core

    try:
        draft_header = read_header(draft)
        if Head.of(draft_header) is None and draft_header.n_file_bytes > header.n_file_bytes / 2:
            return f"{draft} is a model of more than half the target's size; give it with -md if it is to draft"
        return str(_core.vocab_check(os.fsencode(target), os.fsencode(draft), False)["mismatch"])
    except DuoError as e:
        return str(e)


def _named_like(target: Path) -> Iterator[Path]:
    """Files whose names say that they are drafts, and of this target: by its name, or because there is no other."""
    try:
        files = sorted(p for p in target.parent.glob("*.gguf") if NO_MODEL not in p.name and p.name != target.name)
    except OSError:
        return
    base = base_name(target)
    names = {path: base_name(path) for path in files}
    prefixed = {path: name for path, name in names.items() if name.startswith(PREFIXES)}
    like_target = {path for path, name in names.items() if _follows(name, base)}
    alone = all(name == base for path, name in names.items() if path not in prefixed and path not in like_target)
    for path in files:
        if path in like_target or (path in prefixed and (alone or names[path].partition("-")[2] == base)):
            yield path


def _follows(name: str, base: str) -> bool:
    """As "model-eagle3" follows "model"."""
    return name.startswith(base) and name[len(base) :].lstrip("-._").startswith(_KINDS)
