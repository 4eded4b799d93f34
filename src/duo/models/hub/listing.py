"""Finds the files of a model in a repository, by llama.cpp's rules."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from duo.errors import BadValueError, UnknownModelError

DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")  # in this order; otherwise the first model file
# Files beside a model that are not one: image encoders, importance matrices, draft heads (head_files.py). llama.cpp
# finds these words anywhere in a name (common/download.cpp: gguf_filename_is_model).
_COMPANIONS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_PART = re.compile(r"(?P<prefix>.+)-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(r"[-.]([A-Z0-9_]+)$", re.IGNORECASE)


class MissingFileError(UnknownModelError):
    """A file that the hub or the cache does not have. The message is "what; advice"."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}; {advice}")
        self.what = what


class HubFile(NamedTuple):
    """A file in the hub's list."""

    size: int  # bytes; 0 if the hub does not say
    blob: str  # name of its data in the cache; empty if the hub does not say


Listing = tuple[dict[str, HubFile], str]  # the files of a repository by name, and the commit


def is_safe(name: str) -> bool:
    """Whether this path, which comes from a server, stays inside the folder that it is put into."""
    # Windows does not allow a colon or a backslash in a name; they are refused everywhere.
    return name.isprintable() and not set(name) & set("\\:") and not set(name.split("/")) & {"", ".", ".."}


def is_whole(path: Path, listed: HubFile) -> bool:
    """Whether the file exists, with the size that the hub states, if it states one."""
    return os.path.isfile(path) and listed.size in (0, path.stat().st_size)


def is_blob(etag: str) -> bool:
    """Whether a file may have this name: a sha256 for large files, a sha1 for small ones."""
    return re.fullmatch(r"[A-Za-z0-9_-]{1,128}", etag) is not None


def is_model(name: str) -> bool:
    """Whether this is the file of a model, or the first of its parts. name: path inside the repository."""
    base = name.rsplit("/", 1)[-1]
    return name.lower().endswith(".gguf") and not any(c in base for c in _COMPANIONS) and is_first_part(name)


def is_first_part(name: str) -> bool:
    """Whether a file is no later part of a split model."""
    part = _PART.fullmatch(name)
    return part is None or int(part["part"]) == 1


def n_parts_of(name: str) -> int:
    """Of how many parts of a model a file is one, by its name."""
    part = _PART.fullmatch(name)
    return 1 if part is None else int(part["parts"])


def quant_of(name: str) -> str:
    """The quantisation at the end of a file's name, such as Q4_K_M; empty if there is none."""
    part = _PART.fullmatch(name)
    stem = part["prefix"] if part is not None else name[: -len(".gguf")]
    match = _QUANT.search(stem)
    return match[1].upper() if match else ""


def quants(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(q for q in (quant_of(n) for n in names if is_model(n)) if q))


def choose(names: Sequence[str], quant: str | None) -> str | None:
    """The file of this quantisation; without one, of the defaults, or any. None if there is none."""
    models = [n for n in names if is_model(n)]
    for q in (quant,) if quant else DEFAULT_QUANTS:
        pattern = re.compile(re.escape(q) + "[.-]", re.IGNORECASE)
        exact = [name for name in models if quant_of(name) == q.upper()]  # llama.cpp finds F16 in BF16
        if found := exact or [name for name in models if pattern.search(name)]:
            return found[0]
    return None if quant or not models else models[0]


def match(names: Sequence[str], pattern: str) -> str | None:
    """The file of this name, or the only one that matches a pattern with * or ?. Raises BadValueError if several
    match."""
    if pattern in names:
        return pattern
    matches = [n for n in names if fnmatch.fnmatch(n, pattern) or fnmatch.fnmatch(n.rsplit("/", 1)[-1], pattern)]
    models = [n for n in matches if is_model(n)]
    if len(models) > 1:
        raise BadValueError(f"{pattern} matches {len(models)} files ({shown(models)}); name one of them")
    return models[0] if models else None


def parts_of(names: Iterable[str], chosen: str) -> list[str]:
    """All parts of a split model in order; [chosen] if it is not split. Raises UnknownModelError if one is missing."""
    part = _PART.fullmatch(chosen)
    if part is None:
        return [chosen]
    n_parts, name_set = int(part["parts"]), set(names)
    if int(part["part"]) != 1:
        raise UnknownModelError(f"{chosen} is part {int(part['part'])} of {n_parts} of a model; name its first part")
    parts = [f"{part['prefix']}-{i:05}-of-{n_parts:05}.gguf" for i in range(1, n_parts + 1)]
    for name in parts:
        if name not in name_set:
            raise MissingFileError(f"the model has {n_parts} parts, but {name} is missing", "choose another file")
    return parts


def shown(names: Sequence[str], n_most: int = 8) -> str:
    """The first few names, for a sentence."""
    more = len(names) - n_most
    return ", ".join(names[:n_most]) + (f" and {more} more" if more > 0 else "")
