"""Packed files in place of the model's: what somebody else wrote, damage, and the form, which stays."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf_files import STR, U32, Array, write
from model_files import TYPES
from packed_files import target as target
from packed_files import whole_file

from duo import BadValueError, Duo, DuoError, _core
from duo.placement import packed_writer

pytestmark = needs_kernels

FACTS, REST = b"duo.packed.tensors", b"duo.packed.rest"  # keys of arrays of 64-bit numbers


def checksum(data: bytes, seed: int = 0) -> int:
    """csrc/base/checksum.h"""
    factor, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def mix(total: int, word: int) -> int:
        total = ((total ^ word) * factor) & mask
        return total ^ (total >> 29)

    lanes = [((seed + i + 1) * factor) & mask for i in range(4)]
    n = len(data) // 32 * 32
    for at, word in enumerate(struct.unpack(f"<{n // 8}Q", data[:n])):
        lanes[at % 4] = mix(lanes[at % 4], word)
    total = len(data)
    for word in (*lanes, *(int.from_bytes(data[at : at + 8], "little") for at in range(n, len(data), 8))):
        total = mix(total, word)
    return total


def forge(file: Path, key: bytes, index: int, value: int) -> None:
    """Sets one number of an array in the header, and makes the header's sum right."""
    n = GGUFReader(file).data_offset
    content = bytearray(file.read_bytes())
    at = content.index(key) + len(key) + 4 + 4 + 8 + 8 * index  # types of the value and of its elements, their number
    content[at : at + 8] = struct.pack("<q" if value < 0 else "<Q", value)
    place = content.index(b"duo.packed.header_sum") + len("duo.packed.header_sum") + 4
    total = checksum(bytes(content[place + 8 : n]), checksum(bytes(content[:place])))
    content[place : place + 8] = struct.pack("<Q", total)
    file.write_bytes(content)


def test_headers_with_impossible_numbers(target: Path) -> None:
    file = whole_file(target)
    good = file.read_bytes()
    forge(file, FACTS, 2, GGUFReader(file).fields["duo.packed.tensors"].contents()[2])
    assert file.read_bytes() == good  # so what follows is refused for its numbers
    for key, index, values in (
        (FACTS, 0, (-1, 4, 1000, 1 << 40, 1)),  # 4: a type that ggml has no more
        (FACTS, 1, (-1, 4, 1000, 1)),
        (FACTS, 2, (-64, 0, 64, 1 << 62)),
        (FACTS, 3, (-1, 0, 1 << 62)),
        (FACTS, 4, (-1, 0, 1 << 62)),
        (REST, 0, (0, 1, (1 << 64) - 1)),
        (REST, 1, (0, (1 << 64) - 1)),
    ):
        for value in values:
            file.write_bytes(good)
            forge(file, key, index, value)
            with pytest.raises(BadValueError, match="packed weights in"):
                Duo(file)
                pytest.fail(f"{key!r} {index} {value}")


def test_what_is_unpacked_is_compared_with_the_models_sum(target: Path) -> None:
    file = whole_file(target)
    target.unlink()
    forge(file, REST, 2, 12345)
    with pytest.raises(BadValueError, match=r"not the model's file.*keep the packed file"):
        packed_writer.unpack(str(file), target, 2)
    assert [p.name for p in target.parent.iterdir()] == [file.name]


def test_damage_before_what_tells_packed_files(target: Path) -> None:
    file = whole_file(target)
    good = file.read_bytes()
    for at in range(0, 64, 7):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        with pytest.raises(DuoError):
            Duo(file)
            pytest.fail(f"byte {at}")


def test_damage_is_named(target: Path) -> None:
    file = whole_file(target)
    weights = next(t for t in GGUFReader(file).tensors if "ffn_up" in t.name)
    content = bytearray(file.read_bytes())
    content[weights.data_offset + 100] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadValueError, match=rf"are damaged \(bytes {weights.data_offset} to .*{weights.name}"):
        packed_writer.unpack(str(file), target.parent / "x.gguf", 2)


# ---- the form


FORM = "663c26d50b19ef36fbacc14341c0ed37ad8df6171c7a9f4f80ce9d9e08f35ce6"  # SHA-256 of the packed weights


def test_the_form_of_a_version_never_changes(tmp_path: Path) -> None:
    """Users may have nothing else of a model. So a new form gets a new version, and duo still reads the old one."""

    def codes(kind: GGMLQuantizationType) -> Array:
        n_block, n_bytes = GGML_QUANT_SIZES[kind]
        n = 256 // n_block * n_bytes
        rows: Array = np.arange(20 * n, dtype=np.uint32).reshape(20, n) * np.uint32(2654435761) >> 24
        return rows.astype(np.uint8)

    header = {"general.architecture": (STR, "llama"), "llama.block_count": (U32, len(TYPES))}
    kinds = [GGMLQuantizationType[kind.upper()] for kind in TYPES]
    model = write(
        tmp_path / "m.gguf", header, [(f"blk.{i}.ffn_up.weight", codes(kind), kind) for i, kind in enumerate(kinds)]
    )
    file = whole_file(model)
    reader = GGUFReader(file)
    assert len(reader.tensors) == len(TYPES) + 1
    weights = file.read_bytes()[reader.data_offset : reader.tensors[-1].data_offset]  # and the last one is the rest
    assert (_core.WHOLE_VERSION, hashlib.sha256(weights).hexdigest()) == (2, FORM)
