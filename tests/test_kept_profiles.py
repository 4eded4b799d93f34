"""What a run has learned of a pair is kept when it is closed, and the next one starts warm."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duo import Duo, DuoError, _core
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.placement import profiles

TARGET, DRAFT = demo_pair()
OPTIONS: dict[str, Any] = {"n_ctx": 512, "cpu_kernels": "stock"}
LONG: dict[str, Any] = {"max_tokens": 3 * profiles.N_WORTH_KEEPING, "n_draft": 1, "mode": "sync", "ignore_eos": True}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No pairs are known, and those saved here are not known to other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DUO_PROFILES", raising=False)
    return profiles.cache_file()


@pytest.fixture
def pair_in(tmp_path: Path) -> Callable[[str], Path]:
    """A folder of this name with t.gguf and d.gguf."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for model, copy in ((TARGET, "t.gguf"), (DRAFT, "d.gguf")):
            shutil.copyfile(model, folder / copy)
        return folder

    return make


def learned(d: Duo) -> list[float]:
    """A text that teaches something, and what."""
    d.generate("Once upon a time", seed=1, **LONG)
    assert d.engine.n_measured >= profiles.N_WORTH_KEEPING
    return d.engine.profile()


def known(*models: str | Path) -> list[float]:
    """What a new run starts with."""
    with Duo(*models, **OPTIONS) as d:
        return d.engine.profile()


def test_the_second_run_begins_where_the_first_ended(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(known(TARGET, DRAFT))
    with Duo(TARGET, DRAFT, **OPTIONS) as d:
        numbers = learned(d)
        assert not cache.exists()
    assert any(numbers)
    assert known(TARGET, DRAFT) == numbers
    with SwitchedDuo(TARGET, DRAFT, delay=(1, 1), **OPTIONS) as d:
        assert not any(d.engine.profile()) and not d.profile_key, "late models are another pair"
    monkeypatch.setenv("DUO_PROFILES", "off")
    assert not any(known(TARGET, DRAFT))


def test_a_few_passes_are_not_worth_keeping(cache: Path) -> None:
    with Duo(TARGET, DRAFT, **OPTIONS) as d:
        d.generate("Once", max_tokens=4, mode="sync", n_draft=1)
    with Duo(TARGET, **OPTIONS) as d:  # no pair
        d.generate("Once", **LONG | {"mode": "plain"})
    assert not cache.exists()


def test_it_is_kept_for_the_files_that_were_loaded(
    pair_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """Wherever the process goes meanwhile."""
    here, elsewhere = pair_in("here"), pair_in("elsewhere")
    shutil.copyfile(TARGET, elsewhere / "d.gguf")
    monkeypatch.chdir(here)
    d = Duo("t.gguf", "d.gguf", **OPTIONS)
    numbers = learned(d)
    monkeypatch.chdir(elsewhere)
    d.close()
    assert len(json.loads(cache.read_text())) == 1
    assert not any(known("t.gguf", "d.gguf"))
    monkeypatch.chdir(here)
    assert known("t.gguf", "d.gguf") == numbers


def test_files_that_came_meanwhile_are_others(pair_in: Callable[[str], Path]) -> None:
    folder = pair_in("here")
    models = folder / "t.gguf", folder / "d.gguf"
    with Duo(*models, **OPTIONS) as d:
        learned(d)
        (folder / "d.gguf").unlink()
        shutil.copyfile(TARGET, folder / "d.gguf")
    assert not any(known(*models))


def test_wherever_the_files_lie(pair_in: Callable[[str], Path]) -> None:
    folder = pair_in("here")
    with Duo(folder / "t.gguf", folder / "d.gguf", **OPTIONS) as d:
        numbers = learned(d)
    there = folder.rename(folder.with_name("there"))
    os.utime(there / "t.gguf", (1, 1))
    assert known(there / "t.gguf", there / "d.gguf") == numbers


def test_a_part_of_a_split_model_counts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"t-0000{i}-of-00002.gguf" for i in (1, 2))
    shutil.copyfile(TARGET, first)  # its header says nothing of parts: it is whole
    second.write_bytes(b"weights")
    with Duo(first, DRAFT, **OPTIONS) as d:
        numbers = learned(d)
    assert known(first, DRAFT) == numbers
    second.write_bytes(b"others!")
    assert not any(known(first, DRAFT))


@pytest.mark.skipif(os.name == "nt", reason="a file that is open cannot be removed")
def test_a_folder_that_is_gone_does_no_harm(
    pair_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    here = pair_in("here")
    monkeypatch.chdir(here)
    d = Duo("t.gguf", "d.gguf", **OPTIONS)
    learned(d)
    shutil.rmtree(here)
    d.close()
    assert cache.exists()


def test_close_closes_everything_even_if_a_part_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_engine: _core.Engine, _key: str) -> None:
        raise RuntimeError("no such thing")

    d = Duo(TARGET, DRAFT, **OPTIONS)
    engine = d.engine
    monkeypatch.setattr(profiles, "keep", failing)
    with pytest.raises(RuntimeError, match="no such thing"):
        d.close()
    with pytest.raises(DuoError):
        engine.profile()
    d.close()
