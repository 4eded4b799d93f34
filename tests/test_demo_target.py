"""The demo target that `duo race` widens: made once, in the cache, whatever else happens there."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duo import Duo
from duo.errors import DoesNotFitError, DuoError
from duo.gguf_tools import demo_target
from duo.models.demo import demo_pair

TARGET, _ = map(str, demo_pair())
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, for a target of 20 MB."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(demo_target, "SIZE", 20_000_000)
    return tmp_path / "duo"


def test_the_widened_target_is_made_once_and_replaces_older_ones(small: Path) -> None:
    small.mkdir()
    old = small / f"{demo_target.PREFIX}0.0.1-12345678.gguf"
    other = small / "mine.gguf"
    for file in (old, other):
        file.write_bytes(b"x")
    done: list[int] = []
    path = demo_target.demo_target(lambda _, n, total: done.append(n))
    assert path == demo_target.demo_target_path() and path.parent == small
    assert path.stat().st_size == pytest.approx(20_000_000, rel=0.25)
    assert done == sorted(done) and len(done) > 1
    assert not old.exists() and other.exists()
    time_made = path.stat().st_mtime_ns
    assert demo_target.demo_target() == path and path.stat().st_mtime_ns == time_made


def test_a_killed_process_leaves_no_half_for_ever(small: Path) -> None:
    """What another process makes now is left alone, also if that process ends first."""
    halves = [small / name / f"{demo_target.PREFIX}x.gguf" for name in (".duo-old", ".duo-now")]
    for half in halves:
        half.parent.mkdir(parents=True)
        half.write_bytes(b"x")
    os.utime(halves[0], (1, 1))
    path = demo_target.demo_target()
    assert [half.parent.exists() for half in halves] == [False, True] and path.is_file()


def test_two_may_make_it_at_once(small: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: demo_target.demo_target(), range(2)))
    assert paths == [demo_target.demo_target_path()] * 2 and [p.name for p in small.iterdir()] == [paths[0].name]
    with Duo(paths[0], n_ctx=256) as d, Duo(TARGET, n_ctx=256) as narrow:
        asked: dict[str, Any] = {"max_tokens": 8, "temperature": 0}
        assert d.generate("Once upon", **asked).text == narrow.generate("Once upon", **asked).text


def test_a_disk_that_is_full_in_the_end_leaves_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_name: str, done: int, _total: int) -> None:
        if done > 5_000_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DuoError, match=r"gguf: could not be written \(No space left on device\); choose another"):
        demo_target.demo_target(full)
    assert list(small.iterdir()) == []


def test_a_race_without_models_makes_the_target(run: Run, small: Path) -> None:
    code, out, _ = run("race", "-n", 12, "-c", 256, "--temp", 0, "--json")
    assert code == 0
    got = json.loads(out)
    assert got["same_text"] and got["target"].startswith(demo_target.PREFIX)
    with Duo(TARGET, n_ctx=256) as d:
        assert d.generate(got["prompt"], max_tokens=12, temperature=0).text == "".join(
            p[1] for p in got["alone"]["pieces"]
        )


def test_no_room_for_the_target(run: Run, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo_target.shutil, "disk_usage", lambda _: SimpleNamespace(free=30_000_000))
    with pytest.raises(DoesNotFitError, match=r"needs 20 MB in .*duo and 30 MB are free; free some space, set"):
        demo_target.demo_target()
    code, out, err = run("race")
    assert (code, out) == (1, "") and err.count("\n") == 1
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    with pytest.raises(DuoError, match="cannot be used"):
        demo_target.demo_target()
