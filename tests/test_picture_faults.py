"""Damaged and strange pictures: each is refused in one sentence or read, and the process lives."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT
from picture_files import damaged, packed_anew, samples
from vision_models import KINDS, mrope_model, png, png_of, projector

from duo import BadValueError, Duo
from duo.generation.pictures import seen_tokens
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.support.picture_file import N_PIXELS_TOGETHER, check_pictures

N_FEW, N_MANY = 40, 3000  # faults for each file
SIZES = ((1, 1), (1, 2), (3, 1), (1, 300), (300, 1), (2000, 1), (1, 65_535), (65_535, 2), (13, 999))


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    file = projector(tmp_path_factory.mktemp("faults") / "mlp.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    with Duo(n_ctx=512, mmproj=str(file), n_threads=1, **EXACT) as d:
        yield d


def is_read(d: Duo, file: bytes) -> bool:
    """Whether it was; otherwise one sentence says why not."""
    try:
        found = seen_tokens(d.local_model, [file, "Once"])
    except BadValueError as e:
        assert "\n" not in str(e) and len(str(e)) < 300
        return False
    assert len(found) > 2
    return True


def try_faults(d: Duo, n: int) -> None:
    """Of each format some are read and some refused, so that the faults are neither too many nor too few."""
    for name, file in samples().items():
        assert is_read(d, file), name
        rng = random.Random(name)
        read = [is_read(d, damaged(file, rng)) for _ in range(n)]
        if name.startswith("png"):
            read += [is_read(d, packed_anew(file, rng)) for _ in range(n // 2)]
        assert 0 < sum(read) < len(read), name


@pytest.mark.full
def test_damaged_files_are_refused_or_read(seer: Duo) -> None:
    try_faults(seer, N_FEW)


@pytest.mark.daily
@pytest.mark.slow
def test_thousands_of_damaged_files(seer: Duo) -> None:
    try_faults(seer, N_MANY)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_pictures_of_any_shape(kind: str, tmp_path: Path) -> None:
    """libmtmd divides and scales them in many ways, each with limits of its own."""
    target = mrope_model(tmp_path / "target.gguf") if kind == "qwen2vl_merger" else demo_pair()[0]
    file = projector(tmp_path / "p.gguf", kind, read_header(target).n_embd)
    asked: dict[str, Any] = {"max_tokens": 1, "temperature": 0}
    with Duo(str(target), mmproj=str(file), n_ctx=2048, n_threads=1, **EXACT) as d:
        for width, height in SIZES:
            picture = png_of(width, height, (b"\0" + b"\x55" * (width // 8 + 1)) * height, 1, 0)
            try:
                assert d.generate("<__media__> Once", images=[picture], **asked).tokens
            except BadValueError as e:
                assert "\n" not in str(e)
        assert d.generate("<__media__> Once", images=[png()], **asked).tokens


def test_a_jpeg_of_many_scans_is_refused() -> None:
    """Each scan goes over all pixels, however few bytes it has: 2000 of these took a minute."""
    file = samples()["jpeg-progressive"]
    head = bytearray(file[: file.index(b"\xff\xda")])
    scan = bytes.fromhex("ffda000c03010002000300000010")  # one more bit of each block's mean
    check_pictures([bytes(head + scan * 2000)])
    size = head.index(b"\xff\xc2") + 5
    head[size : size + 4] = struct.pack(">HH", 7000, 7000)
    check_pictures([bytes(head + scan * 20)])
    with pytest.raises(BadValueError, match="21 scans"):
        check_pictures([bytes(head + scan * 21)])


def test_pictures_are_not_too_large_together() -> None:
    files = [b"GIF89a" + struct.pack("<HH", 7000, 7000)] * 3
    check_pictures(files)
    with pytest.raises(BadValueError, match=f"together; give at most {N_PIXELS_TOGETHER // 1_000_000} million"):
        check_pictures([*files, *files[:1]])
