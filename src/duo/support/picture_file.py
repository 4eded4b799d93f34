"""Checks a picture's file before it is decoded: its kind and its size, by the header alone.

libmtmd decodes with stb_image, which takes the memory that a header asks for, and inflates whatever a PNG file holds.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from duo.errors import BadValueError

N_BYTES_MOST = 32 << 20
N_PIXELS_MOST = 50_000_000
N_PIXELS_TOGETHER = 150_000_000  # of a prompt: each takes three bytes while it is prepared
N_BYTES_DECODED = 3 * N_PIXELS_MOST  # of one file
_N_SCANNED_MOST = 1_000_000_000  # pixels of a JPEG file times its scans: each goes over all of them
_N_SEGMENTS_MOST = 100_000  # of a JPEG file
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # others are data, filling, or restarts
_SCAN, _END = 0xDA, 0xD9
N_MOST = 100  # pictures of a prompt
_FORMATS = "PNG, JPEG, GIF or BMP"
_LARGEST_SIDE = 1 << 16


class _DamagedError(Exception):
    pass


def check_pictures(files: list[bytes]) -> None:
    """Raises BadValueError: there are too many, one is no picture that can be decoded, or they are too large."""
    if len(files) > N_MOST:
        raise BadValueError(f"the prompt has {len(files)} pictures; give at most {N_MOST}")
    n = sum(_check(data, f"picture {i}") for i, data in enumerate(files, 1))
    if n > N_PIXELS_TOGETHER:
        raise BadValueError(
            f"the pictures have {n // 1_000_000} million pixels together; give at most "
            f"{N_PIXELS_TOGETHER // 1_000_000} million, scaled down"
        )


def _check(data: bytes, which: str) -> int:
    """The number of pixels."""
    if len(data) > N_BYTES_MOST:
        raise BadValueError(f"{which} has {len(data) >> 20} MiB; give at most {N_BYTES_MOST >> 20} MiB")
    try:
        width, height = _size(data, which)
        n_scans = _n_scans(data) if data.startswith(b"\xff\xd8") else 0
    except (_DamagedError, struct.error, IndexError):
        raise BadValueError(f"{which} is damaged: it ends too early, or its header is wrong; save it anew") from None
    if width < 1 or height < 1:
        raise BadValueError(f"{which} has no pixels ({width} x {height}); give another one")
    if width * height > N_PIXELS_MOST or max(width, height) > _LARGEST_SIDE:
        raise BadValueError(
            f"{which} has {width} x {height} pixels; give at most {N_PIXELS_MOST // 1_000_000} million, scaled down"
        )
    if data.startswith(b"\x89PNG"):
        try:
            _check_inflated(data, width, height, which)
        except (_DamagedError, struct.error, IndexError, zlib.error):
            raise BadValueError(f"{which} is damaged: its PNG data cannot be read; save it anew") from None
    if n_scans * width * height > _N_SCANNED_MOST:
        raise BadValueError(f"{which} is a JPEG file of {n_scans} scans, which take too long; save it anew")
    return width * height


def _size(data: bytes, which: str) -> tuple[int, int]:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        if data[12:16] != b"IHDR":
            raise _DamagedError
        return struct.unpack_from(">II", data, 16)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg_size(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return struct.unpack_from("<HH", data, 6)
    if data.startswith(b"BM"):
        if struct.unpack_from("<I", data, 14)[0] == 12:
            return struct.unpack_from("<HH", data, 18)
        width, height = struct.unpack_from("<ii", data, 18)
        return abs(width), abs(height)
    start = data[:256].lstrip().lower()
    kind = "an SVG drawing" if start.startswith((b"<svg", b"<?xml")) else "no picture that duo can read"
    raise BadValueError(f"{which} is {kind}; give {_FORMATS}")


def _jpeg_markers(data: bytes) -> Iterator[tuple[int, int]]:
    """Each marker that stb_image would read before the end of the picture, and where what follows it begins. What
    segments hold (a thumbnail), and what stands behind the end, has markers of its own, which do not count."""
    at = 2
    for _ in range(_N_SEGMENTS_MOST):
        match = _JPEG_MARKER.search(data, at)
        if match is None or data[match.end() - 1] == _END:
            return
        at = match.end()
        marker = data[at - 1]
        yield marker, at
        if marker not in (0x01, 0xD8):  # these have no segment
            n = int.from_bytes(data[at : at + 2], "big")
            if n < 2:  # stb_image gives up
                return
            at += n
    raise _DamagedError  # no honest file has so many


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height in pixels: of the first frame, as in stb_image."""
    for marker, at in _jpeg_markers(data):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 3)
            return width, height
        if marker == _SCAN:
            break
    raise _DamagedError


def _n_scans(data: bytes) -> int:
    return sum(marker == _SCAN for marker, _ in _jpeg_markers(data))


def _png_data(data: bytes) -> Iterator[bytes]:
    at = 8
    while True:
        n, name = struct.unpack_from(">I4s", data, at)
        if n > len(data) - at - 12:
            raise _DamagedError
        if name == b"IDAT":
            yield data[at + 8 : at + 8 + n]
        if name == b"IEND":
            return
        at += 12 + n


def _check_inflated(data: bytes, width: int, height: int, which: str) -> None:
    """The data of a PNG file must not become more than its pixels need."""
    depth, colour = data[24], data[25]
    n_channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour)
    if n_channels is None or depth not in (1, 2, 4, 8, 16):
        raise _DamagedError
    # An interlaced file has seven small pictures, whose rows are rounded up to bytes, each with a byte before it.
    n_most = height * (width * n_channels * depth // 8 + 2) + 15 * (height + width) + 4096
    inflate = zlib.decompressobj()
    n = 0
    for part in _png_data(data):
        rest = part
        while rest and not inflate.eof:
            n += len(inflate.decompress(rest, 1 << 20))
            rest = inflate.unconsumed_tail
            if n > n_most:
                raise BadValueError(f"{which} holds more data than its {width} x {height} pixels need; save it anew")
