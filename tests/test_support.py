"""Small helpers: files that are written whole or not at all, and words."""

import os
from pathlib import Path

import pytest

from duo.support.atomic import replacing, write_whole
from duo.support.wording import one_line, plural


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    with pytest.raises(RuntimeError, match="half way"), replacing(link) as fresh:
        fresh.write_bytes(b"half")
        raise RuntimeError("half way")
    assert real.read_bytes() == b"old"
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write_whole(tmp_path / "new", b"new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    with pytest.raises(OSError, match="missing"):
        write_whole(tmp_path / "missing" / "new", b"new")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_is_not_a_regular_file_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"news")
        assert os.read(reader, 9) == b"news"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_words() -> None:
    assert [plural(n, "thread") for n in (0, 1, 2)] == ["0 threads", "1 thread", "2 threads"]
    assert one_line(ValueError("a\n  b ")) == "a b"
    assert one_line(ValueError("abcdef"), 3) == "abc"
    assert one_line(AssertionError()) == "AssertionError"
    assert one_line("") == ""
