"""The reader of whole files gives what gguf-py's gives, sooner, and refuses arrays longer than their file."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter

from duo.errors import UnknownModelError
from duo.gguf_tools.whole_file import CheckedGgufReader, whole_file
from duo.models.demo import demo_pair

SCALARS = {kind: dtype(1) for kind, dtype in GGUFReader.gguf_scalar_to_np.items()}


def assert_equal(path: Path) -> None:
    ours, its = CheckedGgufReader(path), GGUFReader(path)
    assert list(ours.fields) == list(its.fields) and ours.data_offset == its.data_offset
    for name, field in its.fields.items():
        mine = ours.fields[name]
        assert (mine.offset, mine.data, mine.types) == (field.offset, field.data, field.types), name
        assert [(p.dtype, p.tobytes()) for p in mine.parts] == [(p.dtype, p.tobytes()) for p in field.parts], name
        assert mine.contents() == field.contents(), name
    for a, b in zip(ours.tensors, its.tensors, strict=True):
        assert (a.name, a.tensor_type, a.data_offset) == (b.name, b.tensor_type, b.data_offset)
        assert a.data.dtype == b.data.dtype and np.array_equal(a.data, b.data)


def test_the_demo_target() -> None:
    assert_equal(demo_pair()[0])


@pytest.mark.parametrize("endian", GGUFEndian)
def test_arrays_of_each_type(endian: GGUFEndian, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama", endianess=endian)
    for kind, one in SCALARS.items():
        writer.add_key_value(f"a.{kind.name}", [one.item(), 0, 1], GGUFValueType.ARRAY, sub_type=kind)
    writer.add_key_value("a.text", ["", "é", "three"], GGUFValueType.ARRAY, sub_type=GGUFValueType.STRING)
    writer.add_key_value("after", "all", GGUFValueType.STRING)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    assert_equal(path)


def raw(kind: int, n: int, data: bytes) -> bytes:
    """A file of one array."""
    return struct.pack("<IIQQQ1sIIQ", gguf.GGUF_MAGIC, 3, 0, 1, 1, b"a", GGUFValueType.ARRAY, kind, n) + data


@pytest.mark.parametrize(
    ("kind", "n", "data"),
    [
        (GGUFValueType.STRING, 0, b""),
        (GGUFValueType.UINT32, 0, b""),
        (GGUFValueType.ARRAY, 0, b""),
        (77, 0, b""),
        (GGUFValueType.ARRAY, 2, struct.pack("<IQH", GGUFValueType.INT16, 1, 5) * 2),
    ],
)
def test_arrays_that_are_empty_or_nested(kind: int, n: int, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw(kind, n, data))
    assert_equal(path)


@pytest.mark.parametrize(
    ("kind", "n", "data", "why"),
    [
        (GGUFValueType.UINT32, 3, bytes(8), "it ends after 57 bytes, where 61 are needed"),
        (GGUFValueType.UINT8, 1 << 63, bytes(8), "it ends after 57 bytes"),
        (GGUFValueType.STRING, 1 << 63, bytes(16), "it ends after 65 bytes, where 73 are needed"),
        (GGUFValueType.STRING, 1, struct.pack("<Q", 1 << 63), "it ends after 57 bytes"),
        (77, 1, bytes(8), r"77\)? is not a valid GGUFValueType"),
    ],
)
def test_arrays_longer_than_the_file_are_refused(kind: int, n: int, data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw(kind, n, data))
    with pytest.raises(UnknownModelError, match=f"not a complete GGUF .*{why}"):
        whole_file(path)
