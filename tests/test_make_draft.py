"""`duo make-draft`: real quantisation and real measurements on the demo target, the choice of layers, failures."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf_files import STR, rewrite
from made_drafts import TARGET, Run, asked
from sizes import mostly_daily

from duo import DuoError
from duo.cli import made_draft
from duo.cli.commands import make_draft as command
from duo.make_draft import candidates
from duo.make_draft.candidates import DraftSearch, TriedCandidates
from duo.make_draft.layers import LayerSearch
from duo.make_draft.make import DraftOutcome, make_draft
from duo.make_draft.measure import Bench, Figures
from duo.make_draft.recipe import parse_types
from duo.models.header import read_header

# ---- what is written, and when


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, dict[str, float]], None]:
    """Says what measurements find: an expected speed, and tokens/s."""

    def tell(expected: float, measured: dict[str, float]) -> None:
        figures = Figures((0.8,), 10.0, 5.0, expected, 2)
        monkeypatch.setattr(Bench, "figures", lambda *_: figures)
        monkeypatch.setattr(Bench, "raced", lambda *_: measured)

    return tell


FAST, SLOW = {"plain": 10.0, "sync 2": 15.0}, {"plain": 10.0, "sync 2": 9.0}
DISPLACES = {"plain": 10.0, "sync 2": 15.0, "plain alone": 16.0}  # it takes the target's room on the GPU


@pytest.mark.parametrize(
    "expected, measured, force, written",
    mostly_daily(
        [
            (1.5, FAST, False, True),
            (0.9, FAST, False, True),  # the race decides
            (0.9, SLOW, False, False),
            (1.5, SLOW, False, False),
            (0.9, SLOW, True, True),
            (1.5, DISPLACES, False, False),
        ],
        [(0.9, FAST, False, True), (1.5, SLOW, False, False), (0.9, SLOW, True, True)],
    ),
)
def test_a_draft_is_written_if_it_pays_or_if_asked(
    told: Any, tmp_path: Path, run: Run, expected: float, measured: dict[str, float], force: bool, written: bool
) -> None:
    told(expected, measured)
    out = tmp_path / "draft.gguf"
    line = ["make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all"]
    code, table, err = run(*line, *["--force"] * force)
    assert code == (not written) and out.exists() == written
    assert "q4_0 *" in table and f"{expected:.2f}" in table
    pays = measured is FAST
    assert ("pays here" in err) == pays and ("does not pay here" in err) != pays
    assert ("such a draft may pay where" in err) != pays
    assert ("nothing was written" in err) != written and "Traceback" not in err
    assert set(tmp_path.iterdir()) == ({out} if written else set())


@pytest.mark.parametrize("force", mostly_daily([False, True], [False]))
def test_a_draft_whose_race_fails_does_not_pay(
    told: Any, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    def fails(*_: Any) -> None:
        raise DuoError("no memory for both")

    told(1.5, FAST)
    monkeypatch.setattr(Bench, "raced", fails)
    out = tmp_path / "draft.gguf"
    line = ["make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all", "--json"]
    code, text, err = run(*line, *["--force"] * force)
    found = json.loads(text)
    assert (found["pays"], found["gain"], found["race_failed"]) == (False, None, "no memory for both")
    assert code == (not force) and out.exists() == force
    assert "the race failed (no memory for both), so a draft made of the target does not pay here" in err


def test_the_figures_as_json(told: Any, tmp_path: Path, run: Run) -> None:
    told(1.5, FAST)
    out = tmp_path / "draft.gguf"
    code, text, _ = run("make-draft", "-m", TARGET, "-o", out, "--types", "q4_0,f16", "--keep-layers", "all", "--json")
    found = json.loads(text)
    assert code == 0 and found["written"] == str(out) and found["measured"] == FAST and found["pays"]
    assert found["candidates"][0]["name"] == found["best"] == "q4_0" and found["candidates"][0]["c"] == 0.5
    assert {x["name"] for x in found["not_measured"]} >= {"f16"}  # it is larger than the target


def test_a_file_that_exists_is_replaced_only_with_force(told: Any, tmp_path: Path, run: Run) -> None:
    told(1.5, FAST)
    real, out = tmp_path / "real.gguf", tmp_path / "draft.gguf"
    real.write_text("mine")
    out.symlink_to(real)
    line = ["make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all"]
    code, _, err = run(*line)
    assert code == 1 and "exists already" in err and real.read_text() == "mine"
    code, _, _ = run(*line, "--force")
    assert code == 0 and out.is_symlink() and read_header(real).n_layer == 4


def test_a_file_that_appears_meanwhile_stays(
    told: Any, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(1.5, FAST)
    out = tmp_path / "draft.gguf"

    def raced(*_: Any) -> dict[str, float]:
        out.write_text("mine")
        return FAST

    monkeypatch.setattr(Bench, "raced", raced)
    code, _, err = run("make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all")
    assert code == 1 and "by another program meanwhile" in err and out.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "place, error", [("here.gguf", "exists already"), ("missing/x.gguf", "its folder does not exist")]
)
def test_a_place_that_cannot_be_used_is_told_before_a_download(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: str
) -> None:
    (tmp_path / "here.gguf").write_text("mine")
    monkeypatch.setattr(command, "chosen_models", lambda _: pytest.fail("it would download"))
    code, _, err = run("make-draft", "-hf", "someone/something", "-o", tmp_path / place)
    assert code == 1 and error in err and err.count("\n") == 1


def test_what_is_said_if_nothing_can_be_made() -> None:
    assert made_draft.verdict(DraftOutcome(TriedCandidates())) == "no draft could be made of this target"


@pytest.mark.parametrize(
    "more, error",
    [
        (["--types", "q9_z"], "--types has the unknown type 'q9_z'"),
        (["--types", ","], "--types is empty"),
        (["--keep-layers", "1"], "--keep-layers 1 is not possible here; give 2 to 3"),
        (["--keep-layers", "4"], "--keep-layers 4 is not possible here; give 2 to 3"),
        (["--keep-layers", "x"], "--keep-layers 'x' is no number of layers"),
        (["--types", "none", "--keep-layers", "all"], "leave nothing to make"),
        (["-o", "missing/draft.gguf"], "missing/draft.gguf is a folder, or its folder does not exist"),
        (["-o", str(TARGET)], "is the target itself"),
        (["--prompts", "missing.txt"], "missing.txt"),
        (["-m", "missing.gguf"], "missing.gguf"),
        (["-m", __file__], "not a GGUF file"),
        (["-m", str(TARGET.with_name("duo-demo-eagle3-q8_0.gguf"))], "is an EAGLE-3 head"),
        (["--draft-host", "somewhere:1"], "--draft-host"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [] if "-m" in more else ["-m", TARGET]
    code, out, err = run("make-draft", *line, *([] if "-o" in more else ["-o", "draft.gguf"]), *more)
    assert (code, out) == (1, "") and error in err and err.count("\n") == 1 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_target_has_to_be_named(run: Run, tmp_path: Path) -> None:
    code, _, err = run("make-draft", "-o", tmp_path / "draft.gguf")
    assert code == 1 and "-m is missing" in err


def test_a_damaged_target_is_one_sentence(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    broken = folder / "broken.gguf"
    broken.write_bytes(TARGET.read_bytes()[:5_000_000])
    code, _, err = run("make-draft", "-m", broken, "-o", tmp_path / "draft.gguf")
    assert code == 1 and str(broken) in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_of_an_unknown_kind_is_one_sentence(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    foreign = rewrite(TARGET, folder / "foreign.gguf", put={"general.architecture": (STR, "nonsense")})
    line = ["make-draft", "-m", foreign, "-o", tmp_path / "draft.gguf"]
    code, _, err = run(*line, "--keep-layers", "all")
    assert code == 1 and str(foreign) in err and "unknown model architecture: 'nonsense'" in err
    assert err.count("\n") == 1 and list(tmp_path.iterdir()) == [folder]


def test_types_are_read_as_llama_quantize_names_them() -> None:
    assert parse_types(" Q4_0,q3_K, q4_0") == ("q4_0", "q3_k")
    assert parse_types("none") == ()


def test_drafts_that_cannot_be_measured_are_named_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures(self: Bench, draft: Path, name: str) -> Figures:
        if name == "q4_0":
            raise DuoError("no memory for it")
        return Figures((0.8,), 10.0, 5.0, 1.5, 2)

    monkeypatch.setattr(Bench, "figures", figures)
    monkeypatch.setattr(Bench, "raced", lambda *_: FAST)
    made = make_draft(asked(tmp_path / "draft.gguf", types=("q4_0", "q4_1")))
    assert [(x.name, x.why) for x in made.results.left_out] == [("q4_0", "no memory for it")]
    assert made.written and read_header(made.written).weight_type == "q4_1"
    with pytest.raises(DuoError, match="no memory for it"):
        make_draft(asked(tmp_path / "other.gguf"))
    assert [p.name for p in tmp_path.iterdir()] == ["draft.gguf"]


def test_drafts_without_different_layers_are_different_drafts(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(1.5, FAST)
    monkeypatch.setattr(LayerSearch, "chosen", lambda *_: (2,))
    monkeypatch.setattr(LayerSearch, "spread", lambda *_: (1,))
    found = make_draft(asked(tmp_path / "draft.gguf", types=(), tries_layers=True)).results
    assert [c.name for c in found.candidates] == ["3 of 4 layers (without 2)", "3 of 4 layers (without 1)"]


def test_only_what_there_is_time_for_is_tried(told: Any, tmp_path: Path) -> None:
    told(1.5, FAST)
    search = DraftSearch(("q4_0", "q4_1"), None, True, 0.0)
    found = make_draft(replace(asked(tmp_path / "draft.gguf"), search=search)).results
    assert [c.name for c in found.candidates] == ["q4_0"]
    why = {x.name: x.why for x in found.left_out}
    assert why["q4_1"] == "time was up (--minutes)" and "before a layer was tried" in why[candidates.FEWER_LAYERS]


def test_the_parts_of_a_split_target_do_not_stay_in_one_file(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the folder would need room for three targets."""
    told(1.5, FAST)
    files: list[set[str]] = []

    def whole(self: candidates.Workshop) -> Path:
        path = next(tmp_path.glob(".duo-*")) / "whole.gguf"
        shutil.copyfile(TARGET, path)
        return path

    def figures(_: Bench, path: Path, __: str) -> Figures:
        files.append({p.name for p in path.parent.iterdir()})
        return Figures((0.8,), 10.0, 5.0, 1.5, 2)

    monkeypatch.setattr(Bench, "figures", figures)
    monkeypatch.setattr(candidates.Workshop, "_single_file", whole)
    monkeypatch.setattr(LayerSearch, "chosen", lambda *_: (2,))
    monkeypatch.setattr(LayerSearch, "spread", lambda *_: None)
    make_draft(asked(tmp_path / "draft.gguf", types=(), tries_layers=True))
    assert files == [{"whole.gguf"}, {"0.gguf"}]
