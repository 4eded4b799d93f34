"""Which files of a repository are the model that is meant: llama.cpp's rules."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from duo.errors import DuoError

DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")  # in this order, then the first model file there is
# What lies beside a model and is none: image encoders, importance matrices, other kinds of drafts.
_COMPANIONS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_PART = re.compile(r"(?P<prefix>.+)-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(r"[-.]([A-Z0-9_]+)$", re.IGNORECASE)


class Listed(NamedTuple):
    """A file as the hub lists it."""

    size: int
    blob: str  # its data's name in the cache, empty if the hub does not say


def is_safe(name: str) -> bool:
    """Whether this path, which a server may have made up, stays below the folder that it is put into."""
    # On every system: a colon and a backslash are no part of a name on Windows.
    return name.isprintable() and not set(name) & set("\\:") and not set(name.split("/")) & {"", ".", ".."}


def is_whole(path: Path, listed: Listed) -> bool:
    """The file is there, with the size that the hub says, if it says one."""
    return path.is_file() and listed.size in (0, path.stat().st_size)


def is_blob(etag: str) -> bool:
    """Whether a file of this name may be made; a sha256 of what is large, a sha1 of what is small."""
    return re.fullmatch(r"[A-Za-z0-9_-]{1,128}", etag) is not None


def is_model(name: str) -> bool:
    """A model's file, or the first of its parts. `name`: path inside the repository."""
    base = name.rsplit("/", 1)[-1]
    part = _PART.fullmatch(name)
    return (
        name.lower().endswith(".gguf")
        and not any(c in base for c in _COMPANIONS)
        and (part is None or int(part["part"]) == 1)
    )


def quant_of(name: str) -> str:
    """The quantisation that a file's name ends with, as Q4_K_M; empty if it names none."""
    part = _PART.fullmatch(name)
    stem = part["prefix"] if part is not None else name[: -len(".gguf")]
    match = _QUANT.search(stem)
    return match[1].upper() if match else ""


def quants(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(q for q in (quant_of(n) for n in names if is_model(n)) if q))


def choose(names: Sequence[str], quant: str | None) -> str | None:
    """The file of this quantisation (without one: the defaults, then any); None if there is none."""
    models = [n for n in names if is_model(n)]
    for q in (quant,) if quant else DEFAULT_QUANTS:
        pattern = re.compile(re.escape(q) + "[.-]", re.IGNORECASE)
        for name in models:
            if pattern.search(name):
                return name
    return None if quant or not models else models[0]


def match(names: Sequence[str], pattern: str) -> str | None:
    """The file of this name, or the only one that a pattern with * or ? fits. Raises DuoError if several do."""
    if pattern in names:
        return pattern
    found = [n for n in names if fnmatch.fnmatch(n, pattern) or fnmatch.fnmatch(n.rsplit("/", 1)[-1], pattern)]
    first = [n for n in found if is_model(n)]
    if len(first) > 1:
        raise DuoError(f"{pattern} fits {len(first)} files ({shown(first)}); name one of them")
    return first[0] if first else None


def parts_of(names: Iterable[str], chosen: str) -> list[str]:
    """All parts of a split model in order; [chosen] if it is not split. Raises DuoError if one is missing."""
    part = _PART.fullmatch(chosen)
    if part is None:
        return [chosen]
    n_parts, there = int(part["parts"]), set(names)
    if int(part["part"]) != 1:
        raise DuoError(f"{chosen} is part {int(part['part'])} of {n_parts} of a model; name its first part")
    wanted = [f"{part['prefix']}-{i:05}-of-{n_parts:05}.gguf" for i in range(1, n_parts + 1)]
    for name in wanted:
        if name not in there:
            raise DuoError(f"the model has {n_parts} parts and {name} is missing; choose another file")
    return wanted


def shown(names: Sequence[str], n_most: int = 8) -> str:
    """For a sentence: the first few of them."""
    more = len(names) - n_most
    return ", ".join(names[:n_most]) + (f" and {more} more" if more > 0 else "")
