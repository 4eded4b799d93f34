"""Prompts with pictures, as the target reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from duo import _core
from duo.errors import BadValueError
from duo.support.picture_file import check_pictures


class SeenTokens(list[int]):
    """Ids of a prompt. Rows of a picture have ids that no vocabulary has, which come from its hash."""

    def __init__(self, seen: _core.SeenPrompt) -> None:
        super().__init__(seen.tokens)
        self.seen = seen


def pictures_of(tokens: Sequence[int]) -> _core.SeenPrompt | None:
    """What the target is shown with these ids; None: no pictures."""
    return tokens.seen if isinstance(tokens, SeenTokens) else None


def words_of(tokens: Sequence[int]) -> list[int]:
    """The tokens among the ids."""
    return [t for t in tokens if t < _core.FIRST_PICTURE_ID]


def seen_tokens(model: _core.Model, parts: Sequence[str | bytes], *, add_special: bool = True) -> SeenTokens:
    """parts: text, and files of pictures. Control tokens in the text count as such. Raises BadValueError: the model
    sees nothing, or a file is no picture."""
    projector = model.projector
    if projector is None or not projector.sees:
        raise BadValueError("this model reads no pictures; load it with its projector (--mmproj FILE, or mmproj=)")
    check_pictures([p for p in parts if isinstance(p, bytes)])
    return SeenTokens(projector.read(parts, add_special, True))


def file_of(picture: str | bytes | os.PathLike[str]) -> bytes:
    """A picture's file: its bytes, or what stands under a path. Raises BadValueError."""
    if isinstance(picture, bytes):
        return picture
    try:
        with open(picture, "rb") as file:
            return file.read()
    except OSError as e:
        raise BadValueError(f"the picture {os.fspath(picture)} cannot be read ({e.strerror}); check the path") from None
    except ValueError:
        raise BadValueError(f"the picture {picture!r} has a path that is not valid; check it") from None
