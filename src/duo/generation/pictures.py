"""Prompts with pictures, as the target reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from duo import _core
from duo.errors import BadValueError
from duo.support.picture_file import check_pictures
from duo.support.sound_file import check_length, check_sounds, is_sound


class SeenTokens(list[int]):
    """Ids of a prompt. Rows of a picture have ids that no vocabulary has, which come from its hash."""

    def __init__(self, seen: _core.SeenPrompt) -> None:
        super().__init__(seen.tokens)
        self.seen = seen


def pictures_of(tokens: Sequence[int]) -> _core.SeenPrompt | None:
    """The pictures of a prompt with these ids; None: it has none."""
    return tokens.seen if isinstance(tokens, SeenTokens) else None


def words_of(tokens: Sequence[int]) -> list[int]:
    """The tokens among the ids."""
    return [t for t in tokens if t < _core.FIRST_PICTURE_ID]


def seen_tokens(model: _core.Model, parts: Sequence[str | bytes], *, add_special: bool = True) -> SeenTokens:
    """parts: text, and files of pictures and sound. Control tokens in the text count as such. Raises BadValueError: the
    model sees or hears nothing, or a file is neither; DuoError: no process can be started that decodes them."""
    projector = model.projector
    files = [p for p in parts if isinstance(p, bytes)]
    n_sounds = sum(map(is_sound, files))
    if len(files) > n_sounds and (projector is None or not projector.sees):
        raise BadValueError("this model reads no pictures; load it with its projector (--mmproj FILE, or mmproj=)")
    if projector is None or (n_sounds and projector.rate == 0):
        raise BadValueError("this model hears nothing; load it with a projector that hears (--mmproj FILE, or mmproj=)")
    check_media(files)
    return SeenTokens(projector.read([*_decoded(parts, projector.rate)], add_special, True))


def check_media(files: Sequence[bytes]) -> None:
    """Raises BadValueError: there are too many files, one is no picture and no sound, or they are too large."""
    check_pictures([f for f in files if not is_sound(f)])
    check_sounds([f for f in files if is_sound(f)])


def _decoded(parts: Sequence[str | bytes], rate: int) -> Iterator[str | _core.Media]:
    """rate: samples a second that the model hears."""
    from duo.generation.decoding import decoders
    from duo.generation.hearing import hearing

    n_pictures = n_sounds = n_samples = 0
    for part in parts:
        if isinstance(part, str):
            yield part
        elif is_sound(part):
            n_sounds += 1
            sound = decoders.media(part, f"sound {n_sounds}", hearing(rate))
            n_samples += sound.n_bytes // 4
            check_length(n_samples, rate)
            yield sound
        else:
            n_pictures += 1
            yield decoders.media(part, f"picture {n_pictures}")


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
