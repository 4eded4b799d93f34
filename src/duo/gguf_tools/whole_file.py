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

from duo.errors import UnknownModelError
from duo.models.packed_form import refuse_packed


class CheckedGgufReader(gguf.GGUFReader):
    """gguf-py's reader with a bounds check: without it, reading an array that is longer than the file never ends.

    Arrays are read at once: gguf-py takes ten times as long for a vocabulary.
    """

    def _get(self, offset: int, dtype: npt.DTypeLike, count: int = 1, *order: Any, **named: Any) -> npt.NDArray[Any]:
        self._check(int(offset) + int(count) * np.dtype(dtype).itemsize)
        return super()._get(offset, dtype, count, *order, **named)

    def _check(self, end: int) -> None:
        if end > self.data.size:
            raise ValueError(f"it ends after {self.data.size} bytes, where {end} are needed")

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[npt.NDArray[Any]], list[int], list[gguf.GGUFValueType]]:
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        head = [self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)]
        kind, n, begin = int(head[0][0]), int(head[1][0]), orig_offs + 12
        if kind == gguf.GGUFValueType.STRING:
            parts = self._strings(begin, n)
            data = list(range(3, 3 + 2 * n, 2))
        elif n and kind in self.gguf_scalar_to_np:
            values = np.asarray(self._get(begin, self.gguf_scalar_to_np[gguf.GGUFValueType(kind)], n))
            parts = [values[i : i + 1] for i in range(n)]
            data = list(range(2, 2 + n))
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        types = [gguf.GGUFValueType.ARRAY, *([gguf.GGUFValueType(kind)] if n else [])]
        return 12 + sum(p.nbytes for p in parts), head + parts, data, types

    def _strings(self, begin: int, n: int) -> list[npt.NDArray[Any]]:
        """The parts of n strings: of each its length and its bytes."""
        raw = np.asarray(self.data)  # a slice of a memmap takes ten times as long
        length = np.dtype(np.uint64).newbyteorder(self.byte_order)
        parts = []
        for _ in range(n):
            self._check(begin + 8)
            size = raw[begin : begin + 8].view(length)
            end = begin + 8 + int(size[0])
            self._check(end)
            parts += [size, raw[begin + 8 : end]]
            begin = end
        return parts


def whole_file(path: str | os.PathLike[str]) -> CheckedGgufReader:
    """Raises UnknownModelError (there is no such file, or it is not a complete GGUF file) and BadValueError (it is a
    packed file)."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise UnknownModelError(f"{name}: no such file; name an existing GGUF")
    refuse_packed(name, "this command")
    try:
        return CheckedGgufReader(path)
    except (ValueError, LookupError, OverflowError, TypeError) as e:
        raise not_complete(path, e) from e


def not_complete(path: str | os.PathLike[str], why: Exception) -> UnknownModelError:
    return UnknownModelError(f"{os.fspath(path)}: not a complete GGUF ({why}); download or convert it again")


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
