"""Pairs whose target is one file: its MTP layers guess, or n-grams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import KERNELS
from mtp_models import foreseeing

from duo import Duo
from duo.models.demo import demo_pair
from duo.models.pairs import ModelRef, Pair, add
from duo.models.pairs import paths as pair_paths

TARGET = demo_pair()[0]
LINE = ("-p", "once upon a time", "-n", "12", "--temp", "0", "--ignore-eos", "-c", "256")
pytestmark = pytest.mark.usefixtures("empty_lists")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return foreseeing("qwen3next", TARGET, tmp_path_factory.mktemp("mtp") / "seer.gguf")


@pytest.fixture
def mine(seer: Path, empty_lists: Path) -> None:
    add(Pair(name="layers", target=ModelRef(file=str(seer)), head="mtp"))
    add(Pair(name="grams", target=ModelRef(file=str(TARGET)), ngrams="when it repeats itself"))


@pytest.mark.usefixtures("mine")
def test_the_targets_own_layers_guess(seer: Path, run: Run) -> None:
    assert pair_paths("layers") == (seer, None)
    code, text, err = run("--pair", "layers", *LINE, "--strict")
    assert code == 0 and "its MTP layers" in err
    code, alone, err = run("--pair", "layers", *LINE, "--strict", "-md", "none")
    assert (code, alone) == (0, text) and "its MTP layers" not in err
    with Duo.from_pair("layers", n_ctx=256) as d:
        assert d.draft is not None and d.draft.head == "mtp"
    for none in ({"spec_type": "none"}, {"mode": "plain"}, {"n_draft": 0}):
        with Duo.from_pair("layers", n_ctx=256, **none) as d:
            assert d.draft is None, none


def test_a_pair_without_its_draft(run: Run, empty_lists: Path) -> None:
    code, _, err = run("--pair", "demo", *LINE, "-md", "none")
    assert code == 0 and "duo-demo-target" in err and "draft duo-demo" not in err
    far = ModelRef(repo="no/where")
    add(Pair(name="far", target=ModelRef(file=str(TARGET)), draft=far))
    assert run("--pair", "far", *LINE, "-md", "none", "--spec-type", "ngram-map-k")[0] == 0, "nothing is downloaded"


@pytest.mark.usefixtures("mine")
def test_ngrams_guess_where_there_is_nothing_else(run: Run) -> None:
    code, _, err = run("--pair", "grams", *LINE, *KERNELS)
    assert code == 0 and "guesses from n-grams (ngram-map-k)" in err
    for given, spec_type in (
        ({}, "ngram-map-k"),
        ({"spec_type": "none"}, "none"),
        ({"mode": "plain"}, None),
        ({"n_draft": "none"}, None),
    ):
        with Duo.from_pair("grams", n_ctx=64, cpu_kernels="stock", **given) as d:
            assert d.draft is None and d.defaults.get("spec_type") == spec_type


@pytest.mark.usefixtures("mine")
def test_commands_that_compare_take_such_a_pair(run: Run) -> None:
    short = ("--questions", "1", "--repetitions", "1", "--warm-up", "0", "--sync-lengths", "1", "-n", "4", "-c", "512")
    code, out, err = run("bench", "--pair", "layers", *short, "--modes", "plain,sync", "--no-alone")
    assert code == 0 and "sync" in out + err, err
    code, _, err = run("tune", "--pair", "grams", "-c", "256")
    assert code == 1 and "no draft was given" in err


@pytest.mark.usefixtures("mine")
def test_they_are_shown_and_checked(run: Run) -> None:
    shown = run("pairs", "show", "layers")[1]
    assert "draft: none; its own MTP layers guess" in shown
    shown = run("pairs", "show", "grams")[1]
    assert "n-grams: when it repeats itself" in shown and "n-grams guess (--spec-type ngram-map-k)" in shown
    assert "its own MTP layers" in run("pairs")[1]
    code, out, _ = run("check", "layers", "-c", "256")
    assert code == 0 and "MTP layers" in out
    code, _, err = run("check", "grams")
    assert code == 1 and "the pair grams has no draft, only n-grams; give a target and a draft" in err
