"""The two files of a Duo."""

from __future__ import annotations

import os
import re

from duo.errors import DuoError
from duo.models.demo import demo_pair
from duo.options.engine import EngineOptions

PathLike = str | os.PathLike[str]

_PART = re.compile(r"(.+)-[0-9]{5}-of-([0-9]{5})\.gguf")


def pair(model: PathLike | None, draft: PathLike | None, o: EngineOptions) -> tuple[PathLike | None, PathLike | None]:
    """The files of this machine: target and draft. Raises DuoError."""
    if o["verify_host"] is not None:
        if model is not None:
            raise DuoError("a target (-m) was given, but it is on the verify host; leave out one of the two")
        return None, demo_pair()[1] if draft is None else draft
    if o["draft_host"] is not None:
        if draft is not None:
            raise DuoError("a draft (-md) was given, but it is on the draft host; leave out one of the two")
        return demo_pair()[0] if model is None else model, None
    if model is None:
        if draft is not None:
            raise DuoError("a draft was given without a target; give the target too (-m)")
        return demo_pair()
    return model, draft


def path(value: PathLike, what: str) -> str:
    """As text. Raises DuoError for what is no path."""
    name = os.fsdecode(value)
    if "\0" in name or not name:
        raise DuoError(f"the path of the {what} is {'empty' if not name else 'not a path (it holds a NUL byte)'}")
    return name


def parts(path: str) -> list[str]:
    """The files of a model that are there. One that is split has several, whose names number them: see llama_split_path
    of llama.h."""
    named = _PART.fullmatch(path)
    files = [path] if named is None else [f"{named[1]}-{i:05}-of-{named[2]}.gguf" for i in range(1, int(named[2]) + 1)]
    return [file for file in files if os.path.isfile(file)]


def model_bytes(path: str) -> int:
    """Size of all files of a model; 0: there is none."""
    return sum(map(os.path.getsize, parts(path)))
