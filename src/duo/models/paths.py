"""The two model files of a Duo."""

from __future__ import annotations

import os
import re
from typing import cast

from duo.errors import BadValueError, UnknownModelError
from duo.models.demo import demo_pair
from duo.options.engine import EngineOptions

PathLike = str | os.PathLike[str]

_PART = re.compile(r"(.+)-[0-9]{5}-of-([0-9]{5})\.gguf")


def pair(model: PathLike | None, draft: PathLike | None, o: EngineOptions) -> tuple[PathLike | None, PathLike | None]:
    """Target and draft on this machine; None for the one on another machine. Raises BadValueError."""
    if o["verify_host"] is not None:
        if model is not None:
            raise BadValueError(
                "both a target (-m) and a verify host (--verify-host) were given; leave out one of them"
            )
        return None, demo_pair()[1] if draft is None else draft
    if o["draft_host"] is not None:
        if draft is not None:
            raise BadValueError("both a draft (-md) and a draft host (--draft-host) were given; leave out one of them")
        return demo_pair()[0] if model is None else model, None
    if model is None:
        if draft is not None:
            raise BadValueError("a draft was given without a target; give the target too (-m)")
        return demo_pair()
    return model, draft


def written(value: object, what: str) -> str:
    """A path as text. Raises TypeError (it is no path) and BadValueError."""
    try:
        name = os.fsdecode(cast("PathLike", value))
        os.fsencode(name)
    except TypeError:
        raise TypeError(f"the {what} is {type(value).__name__}; give the path of a file") from None
    except UnicodeEncodeError:
        raise BadValueError(f"the path of the {what} is not valid Unicode; check the path") from None
    return name


def path(value: PathLike, what: str) -> str:
    """The path as text. Raises UnknownModelError if no file can have it."""
    name = written(value, what)
    if "\0" in name or not name:
        why = "is empty" if not name else "contains a NUL byte"
        raise UnknownModelError(f"the path of the {what} {why}; check the path")
    return name


def parts(path: str) -> list[str]:
    """Those files of a model that exist. A split model has several, with numbers in their names (llama_split_path in
    llama.h)."""
    match = _PART.fullmatch(path)
    files = [path] if match is None else [f"{match[1]}-{i:05}-of-{match[2]}.gguf" for i in range(1, int(match[2]) + 1)]
    return [file for file in files if os.path.isfile(file)]


def model_bytes(path: str) -> int:
    """Size of all files of a model in bytes; 0 if none exists."""
    return sum(map(os.path.getsize, parts(path)))
