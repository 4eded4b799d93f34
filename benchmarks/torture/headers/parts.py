"""The header of a GGUF file, taken apart: small pieces can be changed, and the rest stays as it is, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SIZES = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, U64: 8, I64: 8, F64: 8}
ALIGNMENT = 32


@dataclass(frozen=True)
class Key:
    name: bytes
    kind: int
    value: bytes  # as the file has it

    @property
    def raw(self) -> bytes:
        return _string(self.name) + struct.pack("<I", self.kind) + self.value


@dataclass(frozen=True)
class Tensor:
    name: bytes
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def raw(self) -> bytes:
        n = len(self.shape)
        dims = struct.pack(f"<I{n}Q", n, *(x & (2**64 - 1) for x in self.shape))
        return _string(self.name) + dims + struct.pack("<IQ", self.kind & 0xFFFFFFFF, self.offset & (2**64 - 1))


@dataclass(frozen=True)
class Parts:
    keys: tuple[Key, ...]
    tensors: tuple[Tensor, ...]
    n_data: int  # bytes behind the header
    magic: bytes = b"GGUF"
    version: int = 3
    n_keys: int | None = None  # what the header says, if not the truth
    n_tensors: int | None = None
    alignment: int = field(default=ALIGNMENT)

    @property
    def raw(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        head = self.magic + struct.pack("<IQQ", self.version, n_tensors & (2**64 - 1), n_keys & (2**64 - 1))
        data = head + b"".join(k.raw for k in self.keys) + b"".join(t.raw for t in self.tensors)
        return data + bytes(-len(data) % self.alignment)

    def with_key(self, i: int, **more: object) -> Parts:
        return self.with_keys(lambda keys: keys.__setitem__(i, replace(keys[i], **more)))  # type: ignore[arg-type]

    def with_keys(self, change: Callable[[list[Key]], object]) -> Parts:
        keys = list(self.keys)
        change(keys)
        return replace(self, keys=tuple(keys))

    def with_tensors(self, change: Callable[[list[Tensor]], object]) -> Parts:
        tensors = list(self.tensors)
        change(tensors)
        return replace(self, tensors=tuple(tensors))


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def parts_of(data: bytes) -> tuple[Parts, int]:
    """Of a file that is right, and where its data begin."""
    at = 24
    version, n_tensors, n_keys = struct.unpack_from("<IQQ", data, 4)

    def string() -> bytes:
        nonlocal at
        (n,) = struct.unpack_from("<Q", data, at)
        at += 8 + n
        return data[at - n : at]

    def value(kind: int) -> None:
        nonlocal at
        if kind == STRING:
            string()
        elif kind == ARRAY:
            of, n = struct.unpack_from("<IQ", data, at)
            at += 12
            if of == STRING:
                for _ in range(n):
                    string()
            else:
                at += n * SIZES[of]
        else:
            at += SIZES[kind]

    keys = []
    for _ in range(n_keys):
        name = string()
        (kind,) = struct.unpack_from("<I", data, at)
        at += 4
        begin = at
        value(kind)
        keys.append(Key(name, kind, data[begin:at]))
    tensors = []
    for _ in range(n_tensors):
        name = string()
        (n,) = struct.unpack_from("<I", data, at)
        shape = struct.unpack_from(f"<{n}Q", data, at + 4)
        at += 4 + 8 * n
        kind, offset = struct.unpack_from("<IQ", data, at)
        at += 12
        tensors.append(Tensor(name, shape, kind, offset))
    begin = at + -at % ALIGNMENT
    return Parts(tuple(keys), tuple(tensors), len(data) - begin, version=version), begin
