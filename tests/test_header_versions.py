"""Headers that were read are kept, but never for another version of the file."""

import os
import time
from pathlib import Path

from gguf_files import STR, rewrite

from duo.models.demo import demo_pair
from duo.models.header import read_header

HOUR = 3600


def _named(path: Path, name: str) -> Path:
    return rewrite(demo_pair()[1], path, put={"general.name": (STR, name)})


def test_a_file_that_is_replaced_by_an_older_one_is_read_again(tmp_path: Path) -> None:
    path, other = _named(tmp_path / "a.gguf", "first"), _named(tmp_path / "b.gguf", "other")
    assert path.stat().st_size == other.stat().st_size
    for made, hours in ((path, 1), (other, 2)):
        os.utime(made, (time.time() - hours * HOUR,) * 2)
    assert [read_header(path).name for _ in range(2)] == ["first"] * 2
    os.replace(other, path)
    assert [read_header(path).name for _ in range(2)] == ["other"] * 2


def test_a_file_that_is_written_twice_in_one_tick_of_the_clock_is_read_again(tmp_path: Path) -> None:
    path = _named(tmp_path / "a.gguf", "first")
    os.utime(path, (time.time(),) * 2)
    first = path.stat()
    assert read_header(path).name == "first"
    _named(path, "other")
    os.utime(path, ns=(first.st_atime_ns, first.st_mtime_ns))
    assert path.stat().st_size == first.st_size
    assert read_header(path).name == "other"


def test_more_files_than_are_kept(tmp_path: Path) -> None:
    paths = [_named(tmp_path / f"{i}.gguf", f"name {i:02}") for i in range(12)]
    for path in paths:
        os.utime(path, (time.time() - HOUR,) * 2)
    for _ in range(2):
        assert [read_header(path).name for path in paths] == [f"name {i:02}" for i in range(12)]
