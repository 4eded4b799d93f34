"""Small pictures in all formats that the server takes, and damaged ones."""

from __future__ import annotations

import random
import struct
import zlib
from io import BytesIO

from PIL import Image
from vision_models import png_of

ENDS = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def samples() -> dict[str, bytes]:
    """A file of each kind of coding, by name."""
    rng = random.Random(1)
    colours = Image.frombytes("RGBA", (24, 20), rng.randbytes(24 * 20 * 4)).resize((48, 40), 2)
    found = {}
    for name, mode, kind, more in (
        ("png", "RGB", "PNG", {}),
        ("png-alpha", "RGBA", "PNG", {}),
        ("png-palette", "P", "PNG", {"transparency": 3}),
        ("png-16", "I;16", "PNG", {}),
        ("jpeg", "RGB", "JPEG", {"quality": 80}),
        ("jpeg-progressive", "RGB", "JPEG", {"quality": 80, "progressive": True}),
        ("jpeg-restarts", "RGB", "JPEG", {"quality": 80, "restart_marker_rows": 1}),
        ("jpeg-grey", "L", "JPEG", {}),
        ("jpeg-cmyk", "CMYK", "JPEG", {}),
        ("gif", "P", "GIF", {"interlace": False}),
        ("gif-interlaced", "P", "GIF", {"interlace": True, "transparency": 2}),
        ("bmp", "RGB", "BMP", {}),
        ("bmp-palette", "P", "BMP", {}),
        ("bmp-1", "1", "BMP", {}),
        ("bmp-alpha", "RGBA", "BMP", {}),
    ):
        picture = colours.convert("L" if mode == "I;16" else mode)
        picture = picture.convert("I").convert("I;16") if mode == "I;16" else picture
        out = BytesIO()
        picture.save(out, kind, **more)
        found[name] = out.getvalue()
    frames = [colours.rotate(90 * i).convert("P") for i in range(4)]
    out = BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    found["gif-animated"] = out.getvalue()
    # Adam7: seven small pictures, each of every dx-th pixel from x on, in every dy-th line from y on.
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    sizes = [(-(-(9 - x) // dx), -(-(9 - y) // dy)) for x, y, dx, dy in passes]
    raw = b"".join(b"\4" + rng.randbytes(3 * width) for width, height in sizes for _ in range(height))
    found["png-interlaced"] = png_of(9, 9, raw, interlaced=True)
    return found


def damaged(file: bytes, rng: random.Random) -> bytes:
    """The file with one to four faults: of bytes, of numbers, of its length, or inside what is compressed."""
    data = bytearray(file)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data)) if rng.random() < 0.7 else rng.randrange(min(64, len(data)))
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice(ENDS)
        elif kind == 2:
            number = rng.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, rng.getrandbits(32)))
            data[at : at + 4] = struct.pack(rng.choice((">I", "<I")), number)
        elif kind == 3:
            del data[at : at + rng.choice((1, 2, 8, 100))]
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 8, 100)))
        elif kind == 5:
            n = rng.choice((4, 16, 64))
            data[at:at] = data[at : at + n] * rng.choice((1, 3, 30))
        elif len(data) > 20:
            del data[max(12, at) :]
        if not data:
            break
    return bytes(data)


def packed_anew(file: bytes, rng: random.Random) -> bytes:
    """A PNG file with faults in what its compressed data become, and right sums; or with faults in these data."""
    at = file.index(b"IDAT")
    n = struct.unpack_from(">I", file, at - 4)[0]
    raw = zlib.decompress(file[at + 4 : at + 4 + n])
    data = (
        zlib.compress(damaged(raw, rng), rng.randrange(10)) if rng.random() < 0.5 else damaged(zlib.compress(raw), rng)
    )
    chunk = struct.pack(">I", len(data)) + b"IDAT" + data + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    return file[: at - 4] + chunk + file[at + 8 + n :]
