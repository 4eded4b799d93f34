"""The draft that a target brings along: MTP layers of its own, a file beside it, or the other half of a known pair."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from duo.errors import DuoError
from duo.models.file_name import base_name
from duo.models.head import Head, refused_layers
from duo.models.header import Header, read_header
from duo.models.hub.listing import is_first_part
from duo.models.paths import model_bytes

# llama.cpp's common/preset.cpp: beside a model in its own folder, such a file is its draft.
PREFIXES = ("mtp-", "dspark-", "dflash-", "eagle3-", "draft-")
TOKENIZER = ("tokenizer.ggml.model", "tokenizer.ggml.pre")
NO_MODEL = "mmproj"
_MATRIX = "imatrix"  # ends the name of an importance matrix; models that were made with one may have it inside theirs
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
    why_not, translated = "", None
    for path in _beside(Path(target)):
        if translated is not None and _has_other_tokenizer(path, header):
            continue  # building another translation takes time, and it would not be preferred
        reason, same = _verdict(path, target, header)
        if not reason and same:
            return DraftSource(path=str(path))
        if not reason:
            translated = translated or path
        why_not = why_not or reason
    if translated is not None:
        return DraftSource(path=str(translated))
    from duo.models.listed_drafts import listed  # imported late: it needs what reads YAML

    tip = ""
    for draft in listed(Path(target)):
        if draft.path is None:
            tip = tip or draft.options
        elif not _verdict(draft.path, target, header)[0]:
            return DraftSource(path=str(draft.path), where=f"is the draft of this target in the pair {draft.pair}")
    return DraftSource(why_not=why_not, tip=tip, refused=refused_layers(header))


def head_beside(target: str, kinds: Sequence[str]) -> str | None:
    """The file beside the target with a head of one of these kinds ("mtp-"), which the user asks for; None: there is
    none, or the target's own MTP layers are such a head."""
    from duo import _core

    if not kinds or not os.path.isfile(target):
        return None
    header = read_header(target)
    if "mtp-" in kinds and header.n_mtp and header.has_trunk and _core.runs_mtp(header.architecture):
        return None
    for path in _beside(Path(target)):
        try:
            head = Head.of(read_header(path))
        except DuoError:
            continue
        if head is not None and f"{head.kind}-" in kinds and not _verdict(path, target, header)[0]:
            return str(path)
    return None


def _verdict(draft: Path, target: str, header: Header) -> tuple[str, bool]:
    """Why this file cannot or should not draft for a target with this header, empty if it can; and whether it has the
    target's vocabulary, so that nothing need be translated."""
    from duo import _core

    try:
        draft_header = read_header(draft)
        if Head.of(draft_header) is None and draft_header.n_file_bytes > header.n_file_bytes / 2:
            if draft_header.n_mtp and _core.runs_mtp(draft_header.architecture):
                return f"{draft} is a whole model with MTP layers, which draft for it if it is the target (-m)", True
            return f"{draft} is a model of more than half the target's size; give it with -md if it is to draft", True
        found = _core.vocab_check(os.fsencode(target), os.fsencode(draft), False)
        return str(found["mismatch"]), not found["difference"]
    except DuoError as e:
        return str(e), True


def _has_other_tokenizer(draft: Path, header: Header) -> bool:
    """Whether its header alone says that its vocabulary is not that of the target with this header."""
    try:
        own = read_header(draft).values
    except DuoError:
        return False
    return any(key in own and own[key] != header.values.get(key) for key in TOKENIZER)


def _beside(target: Path) -> list[Path]:
    """Drafts in the target's folder, heads first, as llama.cpp prefers them, and small files before large ones. If the
    target is a link: those beside the link, then those beside the file that it leads to."""
    try:
        real = target.resolve()
    except (OSError, RuntimeError):  # a link to itself, before Python 3.13
        real = target
    found = [path for place in dict.fromkeys((target, real)) for path in sorted(_named_like(place), key=_rank)]
    return list(dict.fromkeys(found))


def _rank(path: Path) -> tuple[int, int, str]:
    """The place in the order of kinds, the size, and the name."""
    name = base_name(path)
    kind = next((i for i, kind in enumerate(_KINDS) if name.startswith(f"{kind}-")), None)
    if kind is None:
        kind = next(i for i, kind in enumerate(_KINDS) if kind in name)
    try:
        n_bytes = model_bytes(str(path))
    except OSError:  # it has just gone; reading its header says so
        n_bytes = 0
    return kind, n_bytes, path.name


def _named_like(target: Path) -> Iterator[Path]:
    """Files whose names say that they are drafts, and of this target: by its name, or because there is no other."""
    try:
        files = sorted(p for p in target.parent.glob("*.gguf") if _is_model(p) and p.name != target.name)
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


def has_model_name(path: Path) -> bool:
    """False: the name of a projector or an importance matrix."""
    return NO_MODEL not in path.name and not path.stem.lower().endswith(_MATRIX)


def _is_model(path: Path) -> bool:
    """A model or the first part of one, by its name. What may not be looked at is none."""
    return has_model_name(path) and is_first_part(path.name) and os.path.isfile(path)


def _follows(name: str, base: str) -> bool:
    """As "model-eagle3" follows "model"."""
    return name.startswith(base) and name[len(base) :].lstrip("-._").startswith(_KINDS)
