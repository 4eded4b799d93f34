"""What is known of a pair before its first pass, and what of it a user's choice of kernels changes."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Races
from model_files import random_model

from duo import _core
from duo.errors import DuoError
from duo.models.demo import demo_pair
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import kernels, prior
from duo.placement import place as placement
from duo.placement.devices import Device

TARGET, DRAFT = demo_pair()
GB = 10**9

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no instruction set that duo has kernels for")

Place = Callable[..., _core.EngineOptions]


def grown(model: Path, to: Path) -> Path:
    """As large as a model that a team of threads pays for: there is a hole behind its weights."""
    shutil.copyfile(model, to)
    os.truncate(to, prior.SMALL + 1)
    return to


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return grown(TARGET, tmp_path / "target.gguf")


@pytest.fixture
def place(target: Path, races: Races, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A large target and the demo draft on a machine with so many cores, whose kernels race as conftest.py says."""

    def placed(cores: int, model: Path = target, draft: Path = DRAFT, **said: Any) -> _core.EngineOptions:
        monkeypatch.setattr(placement, "usable_cores", lambda slow=False: cores)
        o = engine_options({"device": "none", "device_draft": "none", **said})
        return placement.place(ModelOptions.of(o, "target", str(model)), ModelOptions.of(o, "draft", str(draft)))[0]

    return placed


def expected(path: Path, n_threads: int, width: int) -> float:
    """Microseconds by duo's kernels for q8_0, from the race of the fixture."""
    n_bytes = _core.cpu_weight_bytes(str(path), 0)
    assert list(n_bytes) == ["q8_0"]
    speed = kernels.cached_speed("q8_0", n_threads)
    assert speed is not None
    return prior.REST * speed.duo[width] * n_bytes["q8_0"] / _core.RACE_BYTES


@pytest.mark.parametrize("said", [{}, {"n_threads": 4, "n_threads_draft": 1}, {"n_threads": 2, "n_threads_draft": 3}])
def test_each_model_is_expected_with_its_own_threads(place: Place, target: Path, said: dict[str, Any]) -> None:
    p = place(16, **said)
    n_target, n_draft = said.get("n_threads", 16), said.get("n_threads_draft", 1)
    assert (p.target.n_threads, p.draft.n_threads) == (n_target, n_draft)
    assert p.expected_step_us == pytest.approx(expected(DRAFT, n_draft, 1))
    assert p.expected_pass_us == [(w, pytest.approx(expected(target, n_target, w))) for w in kernels.WIDTHS]


def test_no_times_are_estimated_for_experts(place: Place, tmp_path: Path) -> None:
    """How many of them a pass reads depends on its tokens."""
    llama, mixtral = (
        grown(random_model(tmp_path / kind, kind, "q8_0"), tmp_path / f"{kind}.gguf") for kind in ("llama", "mixtral")
    )
    assert place(2, llama).expected_pass_us
    assert _core.cpu_weight_bytes(str(mixtral), 0) == {}
    p = place(2, mixtral)
    assert (p.expected_pass_us, p.expected_step_us) == ([], 0.0)
    p = place(2, draft=mixtral)
    assert p.expected_pass_us and p.expected_step_us == 0.0


@pytest.mark.parametrize("choice", ["stock", "duo"])
def test_a_users_choice_of_kernels_starts_no_race(place: Place, races: Races, choice: str) -> None:
    p = place(2, cpu_kernels=choice)
    assert (p.expected_pass_us, p.expected_step_us, races) == ([], 0.0, [])
    assert not kernels.cache_file().exists()
    place(2)
    raced = len(races)
    p = place(2, cpu_kernels=choice)  # and uses what is known
    assert p.expected_pass_us and p.expected_step_us > 0 and len(races) == raced


def test_kernels_are_raced_with_the_threads_of_prompts_too(place: Place, races: Races) -> None:
    place(4, n_threads=2, n_threads_batch=3, n_threads_draft=1, n_threads_batch_draft=4)
    assert races == [("q8_0", [2, 3]), ("q8_0", [1, 4])]


def test_weights_are_read_as_far_ahead_as_is_best_for_the_target(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models have the same type, of which there is one distance in a process."""
    told: dict[str, int] = {}
    monkeypatch.setattr(_core, "read_ahead_of", lambda kind, n: told.update({kind: n}))
    place(16)
    assert told == {"q8_0": 2048 * 16}
    place(3)
    for said in ({"cpu_kernels": "duo"}, {"strict": True}):
        told.clear()
        p = place(16, **said)
        assert p.target.cpu_types == ["q8_0"] and told == {"q8_0": 2048 * 16}, "remembered, though nothing is raced"
    told.clear()
    place(16, cpu_kernels="stock")
    assert told == {}
    place(13, cpu_kernels="duo")
    assert told == {"q8_0": 2048 * 1}, "the draft's, as nobody has raced 13 threads"


# ---- parts of a split model


def test_all_parts_of_a_model_count(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first part may hold no weight at all (gguf-split --no-tensor-first-split)."""
    first, draft = tmp_path / "m-00001-of-00003.gguf", grown(DRAFT, tmp_path / "draft.gguf")
    shutil.copyfile(TARGET, first)
    for i in (2, 3):
        with open(tmp_path / f"m-0000{i}-of-00003.gguf", "wb") as part:
            part.truncate(2 * prior.SMALL)
    stock: dict[str, Any] = {"cpu_kernels": "stock"}
    p = place(16, first, draft, **stock)
    assert p.target.n_threads == 16
    assert p.split == (9, 7), "3 guesses a pass, each a quarter of it"
    assert place(16, draft=first, **stock).draft.n_threads == 16
    monkeypatch.setattr(_core, "memory_available", lambda: 3 * prior.SMALL)
    with pytest.raises(DuoError, match=r"the models need 0\.3 GB of the machine's memory"):
        place(16, first, **stock)


# ---- threads beside a draft on another device


@pytest.mark.parametrize(("drafted", "n_threads"), [(True, 7), (False, 8)])
def test_a_draft_on_a_gpu_takes_a_core_only_if_it_works(
    drafted: bool, n_threads: int, place: Place, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(8)
    here = [Device("CPU", "", "cpu", 64 * GB, 64 * GB), Device("GPU0", "", "gpu", 64 * GB, 64 * GB)]
    monkeypatch.setattr(placement, "devices", lambda: here)
    o = engine_options({"device": "none", "cpu_kernels": "stock"})
    pair = ModelOptions.of(o, "target", str(target)), ModelOptions.of(o, "draft", str(DRAFT))
    p, plan = placement.place(*pair, drafted=drafted)
    assert plan is not None and plan.draft is not None and plan.draft.devices == ("GPU0",)
    assert (p.target.n_threads, p.draft.n_threads) == (n_threads, 1)


# ---- what texts do


def test_kernels_are_chosen_for_the_default_kind_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from duo import Duo
    from duo.cli.main import main

    told: list[bool] = []

    def chosen(*_of_model: Any, drafted: bool, overrides: Any) -> list[str]:
        told.append(drafted)
        return []

    monkeypatch.setattr(kernels, "chosen_types", chosen)
    alone, pair = [str(TARGET)], [str(TARGET), str(DRAFT)]
    cases: list[tuple[list[str], dict[str, Any], bool]] = [
        (pair, {}, True),
        (pair, {"mode": "plain"}, False),
        (pair, {"spec_type": ["none"]}, False),
        (pair, {"spec_type": ["ngram-map-k"]}, True),
        (pair, {"spec_type": ["ngram-map-k"], "mode": "plain"}, False),
        (alone, {}, False),
        (alone, {"spec_type": "ngram-map-k"}, True),
        (alone, {"spec_type": ["none"]}, False),
    ]
    for models, said, drafted in cases:
        told.clear()
        Duo(*models, n_ctx=64, **said).close()
        assert told[0] == drafted, (len(models), said)
    for line, drafted in ((["--spec-type", "ngram-map-k"], True), ([], False), (["--mode", "plain"], False)):
        told.clear()
        assert main(["-m", *alone, "-c", "64", "-p", "Once", "-n", "2", *line]) == 0
        assert told[0] == drafted, line


def test_a_race_is_kept_for_the_next_process(place: Place, races: Races) -> None:
    place(2)
    assert len(json.loads(kernels.cache_file().read_text())) == 2  # of one thread and of two
