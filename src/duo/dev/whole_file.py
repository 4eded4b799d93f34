"""A GGUF file with everything in it, for tools that write another one.

Everything else reads headers with duo.models.header. These tools also need the vocabulary and all weights, typed as
gguf-py writes them.
"""

from __future__ import annotations

import os
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from duo.errors import UnknownModel


class Reader(gguf.GGUFReader):
    """gguf-py's reader with a bounds check: without it, reading an array that is longer than the file never ends."""

    def _get(self, offset: int, dtype: npt.DTypeLike, count: int = 1, *order: Any, **named: Any) -> npt.NDArray[Any]:
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if end > self.data.size:
            raise ValueError(f"it ends after {self.data.size} bytes, where {end} are needed")
        return super()._get(offset, dtype, count, *order, **named)


def whole_file(path: str | os.PathLike[str]) -> Reader:
    """Raises UnknownModel: there is no such file, or it is not a complete GGUF file."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise UnknownModel(f"{name}: no such file; name an existing GGUF")
    try:
        return Reader(path)
    except (ValueError, LookupError, OverflowError, TypeError) as e:
        raise not_complete(path, e) from e


def not_complete(path: str | os.PathLike[str], why: Exception) -> UnknownModel:
    return UnknownModel(f"{os.fspath(path)}: not a complete GGUF ({why}); download or convert it again")


def content_of(field: gguf.ReaderField) -> Any:
    """A metadata value without changes: text stays bytes, valid or not."""
    if field.types[-1] is not gguf.GGUFValueType.STRING:
        return field.contents()
    strings = [field.parts[i].tobytes() for i in field.data]
    return strings if field.types[0] is gguf.GGUFValueType.ARRAY else strings[0]


def copy_field(writer: gguf.GGUFWriter, field: gguf.ReaderField) -> None:
    """Adds a metadata value of another file. gguf-py writes no empty arrays, so they are left out."""
    if field.data:
        is_array = field.types[0] is gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, content_of(field), field.types[0], field.types[-1] if is_array else None)
