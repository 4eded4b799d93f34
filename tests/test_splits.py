"""How a pair on the same cores divides them while both models work."""

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

    def placed(cores: int, *, large: bool = True, n_slow: int = 0, **said: Any) -> _core.EngineOptions:
        monkeypatch.setattr(placement, "usable_cores", lambda slow=False: cores + (n_slow if slow else 0))
        o = engine_options({"device": "none", "device_draft": "none", "cpu_kernels": "stock", **said})
        of_target = ModelOptions.of(o, "target", str(target))
        return placement.place(of_target, ModelOptions.of(o, "draft", str(large_draft if large else demo_pair()[1])))[0]

    return placed


def test_the_draft_has_its_share_of_many_cores(place: Place) -> None:
    p = place(16)
    assert (p.target.n_threads, p.draft.n_threads, p.shared) == (16, 16, True), "by turn each has them all"
    assert p.split == (9, 7), "3 guesses a pass, each a quarter of it"
    assert place(6).split == (3, 3)


@pytest.mark.parametrize("cores", [1, 2, 3, 64, 200])
def test_the_threads_of_a_split_do_not_outnumber_the_cores(place: Place, cores: int) -> None:
    p = place(cores)
    target, draft = p.split
    assert target >= draft >= 1 and target + draft == cores if cores > 1 else p.split == (0, 0)


def test_a_small_draft_has_one_core(place: Place) -> None:
    p = place(16, large=False)
    assert (p.target.n_threads, p.draft.n_threads, p.split) == (16, 1, (15, 1))


@pytest.mark.parametrize(
    "said", [{"n_threads": 3}, {"n_threads_draft": 5}, {"cpu_range": "0-1"}, {"cpu_mask_draft": "1"}]
)
def test_the_users_number_of_threads_is_kept(place: Place, said: dict[str, Any]) -> None:
    assert place(16, **said).split == (0, 0)


def test_who_chooses_numbers_of_threads_may_mean_efficiency_cores(place: Place) -> None:
    p = place(8, n_slow=8)
    assert (p.target.n_threads, p.draft.n_threads, p.shared) == (8, 8, True)
    p = place(8, n_slow=8, n_threads_draft=8)
    assert (p.target.n_threads, p.draft.n_threads, p.shared) == (8, 8, False)
    p = place(8, n_slow=8, n_threads_draft=12)
    assert (p.target.n_threads, p.draft.n_threads, p.shared) == (4, 12, False)
    assert not place(8, n_slow=8, n_threads=8, n_threads_draft=8).shared


def test_impossible_splits_are_refused(place: Place) -> None:
    p = place(16)
    for split in ((0, 1), (3, 0), (-1, 2)):
        p.split = split
        with pytest.raises(Exception, match="split"):
            _core.Engine(p, None)
