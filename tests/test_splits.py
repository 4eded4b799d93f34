"""Which ways to split the cores a pair is given. Which one is best is measured: tests/cpp/test_planner_split.cpp."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duo import _core
from duo.models.demo import demo_pair
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import place as placement

Place = Callable[..., _core.EngineOptions]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The demo pair on a machine with so many cores. large: the draft is as large as one that a team pays for."""
    large_draft = tmp_path / "draft.gguf"
    target = tmp_path / "target.gguf"
    for path, model, size in ((target, demo_pair()[0], 280_000_000), (large_draft, demo_pair()[1], 70_000_000)):
        shutil.copyfile(model, path)
        os.truncate(path, size)  # there is a hole behind its weights

    def placed(cores: int, *, large: bool = True, **said: Any) -> _core.EngineOptions:
        monkeypatch.setattr(placement, "usable_cores", lambda: cores)
        o = engine_options({"device": "none", "device_draft": "none", "cpu_kernels": "stock", **said})
        of_target = ModelOptions.of(o, "target", str(target))
        return placement.place(of_target, ModelOptions.of(o, "draft", str(large_draft if large else demo_pair()[1])))[0]

    return placed


def test_many_cores_are_split_in_several_ways(place: Place) -> None:
    p = place(16)
    assert (p.target.n_threads, p.draft.n_threads, p.shared) == (16, 16, True), "by turn each has them all"
    assert p.splits == [(15, 1), (14, 2), (12, 4), (9, 7), (8, 8)]
    assert p.splits[p.split] == (9, 7), "3 guesses a pass, each a quarter of it"
    assert place(6).splits == [(5, 1), (4, 2), (3, 3)]


@pytest.mark.parametrize("cores", [1, 2, 3, 64, 200])
def test_the_threads_of_a_split_do_not_outnumber_the_cores(place: Place, cores: int) -> None:
    p = place(cores)
    assert all(target >= draft >= 1 and target + draft == cores for target, draft in p.splits)
    assert bool(p.splits) == (cores > 1)


def test_a_small_draft_has_one_core(place: Place) -> None:
    p = place(16, large=False)
    assert (p.target.n_threads, p.draft.n_threads, p.splits, p.split) == (16, 1, [(15, 1)], 0)


@pytest.mark.parametrize(
    "said", [{"n_threads": 3}, {"n_threads_draft": 5}, {"cpu_range": "0-1"}, {"cpu_mask_draft": "1"}]
)
def test_the_users_number_of_threads_is_kept(place: Place, said: dict[str, Any]) -> None:
    assert place(16, **said).splits == []


def test_impossible_splits_are_refused(place: Place) -> None:
    p = place(16)
    for splits, split in (([(3, 2), (4, 2)], 0), ([(0, 1)], 0), ([(3, 1)], 1)):
        p.splits, p.split = splits, split
        with pytest.raises(Exception, match="split"):
            _core.Engine(p, None)
