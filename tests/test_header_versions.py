"""Headers that were read are kept, but never for another version of the file."""

import os
import time
from pathlib import Path

import pytest
from gguf_files import STR, rewrite

from duo import Duo
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
    os.utime(path, (time.time() + HOUR,) * 2)  # by the file system's clock it is never old enough
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
    for order in (range(12), reversed(range(12))):  # the last ones are kept
        for i in order:
            assert read_header(paths[i]).name == f"name {i:02}"


def test_a_file_of_the_same_size_and_time_is_another_one(tmp_path: Path) -> None:
    path, long_ago = _named(tmp_path / "a.gguf", "first"), (time.time() - HOUR,) * 2
    os.utime(path, long_ago)
    assert read_header(path).name == "first"
    _named(path, "other")
    os.utime(path, long_ago)
    assert read_header(path).name == "other"
    (tmp_path / "b.gguf").write_bytes(_named(path, "third").read_bytes())
    os.utime(tmp_path / "b.gguf", long_ago)
    os.replace(tmp_path / "b.gguf", path)
    assert read_header(path).name == "third"


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what a process reads")
def test_a_header_is_kept_until_its_model_is_loaded(tmp_path: Path) -> None:
    path = _named(tmp_path / "a.gguf", "first")
    os.utime(path, (time.time() - HOUR,) * 2)

    def n_read() -> int:
        before = _n_read()
        read_header(path)
        return _n_read() - before

    first, kept = n_read(), n_read()
    with Duo(path, n_ctx=64):
        pass
    assert kept < first // 2 < n_read()


def _n_read() -> int:
    """Bytes that this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_link_that_leads_to_another_file_is_followed(tmp_path: Path) -> None:
    link, long_ago = tmp_path / "link.gguf", (time.time() - HOUR,) * 2
    for name in ("first", "other"):
        os.utime(_named(tmp_path / name, name), long_ago)
        (tmp_path / "new").symlink_to(tmp_path / name)
        os.replace(tmp_path / "new", link)
        assert read_header(link).name == name
