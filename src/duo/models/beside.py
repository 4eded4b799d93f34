"""The draft that a target brings along: MTP layers of its own, or a file beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from duo.errors import DuoError
from duo.models.head import Head
from duo.models.header import read_header

# llama.cpp's common/preset.cpp: beside a model in its own folder, such a file is its draft.
PREFIXES = ("mtp-", "dspark-", "dflash-", "eagle3-", "draft-")
NO_MODEL = "mmproj"
_KINDS = tuple(prefix.strip("-") for prefix in PREFIXES)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_QUANT = re.compile(r"[-._](ud-|i1-)?(i?q\d\w*|tq\d\w*|bf16|f16|f32|mxfp4\w*|nvfp4\w*)$", re.IGNORECASE)


class Found(NamedTuple):
    """own: the target's MTP layers. path: a file beside it, or None. why_not: why a file beside it is not used."""

    own: bool = False
    path: str | None = None
    why_not: str = ""


def find(target: str) -> Found:
    """What can draft for a target of which nothing else is said. Raises DuoError as `read_header`."""
    from duo import _core

    if not os.path.isfile(target):
        return Found()  # loading will report it
    header = read_header(target)
    if header.n_mtp and header.has_trunk and _core.runs_mtp(header.architecture):
        return Found(own=True)
    why_not = ""
    for path in _named_like(Path(target)):
        try:
            draft = read_header(path)
            if Head.of(draft) is None and draft.n_file_bytes > header.n_file_bytes / 2:
                why_not = f"{path} is a model of more than half the target's size; give it with -md if it is to draft"
            else:
                why_not = str(_core.vocab_check(os.fsencode(target), os.fsencode(path), False)["mismatch"])
        except DuoError as e:
            why_not = str(e)
        if not why_not:
            return Found(path=str(path))
    return Found(why_not=why_not)


def base_name(path: Path) -> str:
    """Without what tells quantisations and parts of one model from each other: "GLM-4.5-Air" of
    GLM-4.5-Air-UD-Q4_K_XL-00001-of-00002.gguf."""
    return _QUANT.sub("", _PART.sub("", path.name.removesuffix(".gguf"))).lower()


def _named_like(target: Path) -> Iterator[Path]:
    """Files whose names say that they are drafts, and of this target: by its name, or because there is no other."""
    try:
        files = sorted(p for p in target.parent.glob("*.gguf") if NO_MODEL not in p.name and p.name != target.name)
    except OSError:
        return
    mine = base_name(target)
    names = {path: base_name(path) for path in files}
    prefixed = {path: name for path, name in names.items() if name.startswith(PREFIXES)}
    like_mine = {path for path, name in names.items() if _follows(name, mine)}
    alone = all(name == mine for path, name in names.items() if path not in prefixed and path not in like_mine)
    for path in files:
        if path in like_mine or (path in prefixed and (alone or names[path].partition("-")[2] == mine)):
            yield path


def _follows(name: str, mine: str) -> bool:
    """As "model-eagle3" follows "model"."""
    return name.startswith(mine) and name[len(mine) :].lstrip("-._").startswith(_KINDS)
