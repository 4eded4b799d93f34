"""Small helpers: files that are written whole or not at all, and words."""

import io
import os
import sys
from pathlib import Path

import pytest

from duo.cli.progress import progress
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
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    drawn = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("count") as show:
            show("plain", 3, 7)
            show("async", 4, 7)
        with progress("share", lines=True, after_s=1000) as show:
            show("too soon", 0.5, 1.0)
        drawn[stream.isatty()] = stream.getvalue()
    assert "plain" in drawn[True] and "3/7" in drawn[True] and "async" in drawn[True] and "4/7" in drawn[True]
    assert "too soon" not in drawn[True]
    assert drawn[False] == ""
