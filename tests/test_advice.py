"""What `duo tune` advises, and why."""

from typing import Any

import pytest

from duo.benchmark.advice import advise
from duo.benchmark.sharing import Sharing, separate
from duo.benchmark.tuning import Tuning
from duo.cli.commands.tune import recommended
from duo.models.demo import demo_pair

TARGET, DRAFT = map(str, demo_pair())


def tuning(plain: float, sync: float, auto: float, slowdown: float = 1.0, **sharing: Any) -> Tuning:
    return Tuning(
        pass_ms={1: 10.0, 4: 12.0, 9: 30.0},
        step_ms={1: 2.5},
        step_alone_ms=2.0,
        acceptance=[0.8, 0.6],
        slowdown=slowdown,
        n_sync=4,
        measured={"plain": plain, "sync 4": sync, "async auto": auto},
        sharing=Sharing(**sharing),
    )


def test_the_fastest_is_advised_and_auto_among_equals() -> None:
    found = {speeds: advise(tuning(*speeds)) for speeds in [(10, 20, 30), (10, 30, 29.5), (10, 30, 20), (30, 20, 10)]}
    assert [(a.with_draft, " ".join(a.flags)) for a in found.values()] == [
        (True, "--draft auto"),
        (True, "--draft auto"),
        (True, "--mode sync --draft 4"),
        (False, ""),
    ]
    first = [a.reasons[0] for a in found.values()]
    assert "the fastest" in first[0] and "within 3%" in first[1] and "sync with 4" in first[0]
    assert first[2].startswith("Sync with 4 drafted tokens (30.0 tokens/s) is faster")
    assert "leave out the draft (-md none)" in first[3]
    assert found[10, 20, 30].reasons[1] == (
        "A draft step takes 0.20 of a pass of the target; a pass over 4 tokens takes 1.20 of a pass over 1 token; the "
        "draft's first guess is right 80% of the time, and the second then 60%."
    )
    assert all(len(a.reasons) == 2 for a in found.values())


@pytest.mark.parametrize("own", [{"spec_type": "draft-mtp"}, {"model_draft": "draft-x.gguf"}, {}])
def test_without_a_draft_the_command_takes_nothing_that_the_target_brings(own: dict[str, str]) -> None:
    t = tuning(30, 20, 10)
    t.advice = advise(t)
    assert recommended(t, {"model": "x.gguf", "n_gpu_layers": "3", **own}, "x.gguf") == "duo -m x.gguf -md none -ngl 3"


@pytest.mark.parametrize(
    ("sharing", "why"),
    [
        ({"devices": ("CUDA0",)}, "both models are on CUDA0; -devd"),
        (
            {"cpu": True, "options": "-t 3 -Cr 0-2 -td 1 -Crd 3-3"},
            "to separate their cores: -t 3 -Cr 0-2 -td 1 -Crd 3-3.",
        ),
        ({"cpu": True, "own_cores": True}, "they share the memory bus"),
        ({"cpu": True, "lends": True, "options": "-t 3"}, "only while the draft is idle"),
        ({"cpu": True}, "a single core for them"),
        ({}, "the devices share something"),
    ],
)
def test_a_slowdown_is_explained(sharing: dict[str, Any], why: str) -> None:
    reason = advise(tuning(10, 20, 30, 1.25, **sharing)).reasons[2]
    assert reason.startswith("Passes take 1.25 times as long while the draft works: ")
    assert why in reason


def test_cores_are_split() -> None:
    assert separate([0, 1, 2, 3], 3, 1) == "-t 3 -Cr 0-2 -td 1 -Crd 3-3"
    assert separate([0, 1, 2, 3], 4, 4) == "-t 2 -Cr 0-1 -td 2 -Crd 2-3"
    assert separate([4, 5], 1, 1) == "-t 1 -Cr 4-4 -td 1 -Crd 5-5"
    assert separate([0, 2, 4, 6], 3, 1) == "-t 3 -C 0x15 -td 1 -Crd 6-6"
    assert separate([0], 1, 1) == ""
