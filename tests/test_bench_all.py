"""`make bench`: one step of it, what a step that fails leaves, and the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sizes import mostly_daily

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import (  # noqa: E402
    about_machine,
    draft_page,
    extremes,
    real_questions,
    real_rounds,
    real_tables,
    report_page,
    run_all,
)
from benchmarks.pair_files import PairFiles  # noqa: E402
from benchmarks.steps import COUNTS, STEPS, WHOLE_MINUTES, Scale, Step, script  # noqa: E402

from duo.benchmark.bench.expected import PASS_MS, PASS_MS_FROM  # noqa: E402
from duo.models.demo import demo_pair  # noqa: E402

REPORT = ROOT / "benchmarks/results/report.json"


SCRIPTED = {
    "command": "python -m benchmarks.run_boxes",
    "settings": {"n": "64", "questions": "3"},
    "rows": [
        {"box": "A box", "plain_per_second": 2.22, "curve": {"name": "Q4_K"}, "v": [1.1, 1.5], "c": 0.027, "a": 0.6,
         "spec": "a=0.6,pass=450ms",
         "to_plain": {"plain": 1.0, "sync 2": 1.6, "sync 3": 1.7, "sync 4": 1.5, "sync 8": 0.9, "async auto": 2.04},
         "formula_bound": 2.1}
    ],
}  # fmt: skip


def step(*args: str, name: str = "text") -> Step:
    return Step(name, COUNTS, "A title", 30, "What it is.", lambda _m, s, out: [*args, "--out", str(out)])


def run(of: Step, tmp_path: Path) -> dict[str, Any]:
    return run_all.run_step(of, PairFiles(tmp_path), Scale(0.1), tmp_path / "log")


@pytest.mark.daily
def test_a_step_brings_its_figures_and_how_busy_the_machine_was(tmp_path: Path) -> None:
    found = run(step(*script("measure_text", "--questions", "1", "-n", "8")), tmp_path)
    assert found["state"] == "done", (tmp_path / "log").read_text()
    assert found["command"] == "python -m benchmarks.measure_text --questions 1 -n 8"
    assert found["data"]["duo kernels, async k=4: texts equal to plain"] == "1 of 1"
    assert found["seconds"] > 0 and found["other_cores"] is not None and found["other_cores"] >= 0
    text = report_page.of_step(step(), found)
    assert "| duo kernels, async k=4: texts equal to plain | 1 of 1 |" in text


@pytest.mark.full
@pytest.mark.parametrize(
    ("args", "state"),
    [
        (["-c", "import sys; sys.exit(3)"], "failed with exit code 3"),
        (["-c", "print(1)"], "failed with exit code 0"),  # no figures
        (["-c", "import time; time.sleep(60)"], "stopped after 2 s"),
    ],
)
def test_a_step_that_fails_is_named_on_the_page(
    args: list[str], state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_all, "SPARE_S", 2.0)
    monkeypatch.setattr(run_all, "PATIENCE", 0.0)
    found = run(step(*args), tmp_path)
    assert found["state"] == state
    assert report_page.of_step(step(), found) == f"Not measured: {state}."


def test_the_worst_stands_beside_the_best() -> None:
    row = extremes.Row("a / b", [1.2, 0.9, 1.0], "texts")
    assert row.markdown() == "| a / b | 0.90 | 1.00 | 1.20 | 3 texts |"
    speeds = {"first 64": [10.0, 20.0], "first text": [10.0, 20.0], "second text": [10.0, 20.0]}
    arms = {
        "plain alone": {"speeds": speeds},
        "sync 2": {"speeds": {k: [2 * x for x in v] for k, v in speeds.items()}},
        "async": {"speeds": {k: [3 * v[0], 4 * v[1]] for k, v in speeds.items()}},
    }
    to_alone, to_best = extremes.of_defaults({"cells": [{"cell": {"c": "0.2"}, "arms": arms}]})
    assert (min(to_alone.ratios), max(to_alone.ratios), len(to_alone.ratios)) == (3, 4, 6)
    assert (min(to_best.ratios), max(to_best.ratios)) == (1.5, 2)


def real_cell() -> dict[str, Any]:
    """Two questions; async is three times as fast as llama.cpp's plain loop on the first, and as fast on the other."""

    def texts(*seconds: float, first: float = 0.5) -> list[dict[str, Any]]:
        kinds = (("coding", 126), ("math_reasoning", 440))
        return [{"category": kind, "question": i, "n_prompt": 40, "n_tokens": 11, "n_first": 1, "first_s": first,
                 "total_s": s, "equal": i == 126, "right": None}
                for (kind, i), s in zip(kinds, seconds, strict=True)]  # fmt: skip

    arms = {"llama.cpp plain": texts(5.5, 5.5), "llama.cpp speculative k=2": texts(5.5, 11),
            "llama.cpp speculative k=4": texts(22, 22), "duo, target alone": texts(4.4, 4.4),
            "duo sync 1": texts(2.75, 5.5), "duo sync 2": texts(11, 11), "duo async": texts(5.5 / 3, 5.5)}  # fmt: skip
    return {"place": "Default options", "temperature": 0.0, "arms": arms}


def test_the_table_of_the_real_pair() -> None:
    cell = real_cell()
    assert real_tables.best(cell, real_tables.SYNC) == "duo sync 1"
    lines = real_tables.of_cell(cell).splitlines()
    assert lines[2] == "| llama.cpp plain | 2.0 (2.0) | 2.0 (2.0) | 1.00 (1.00) | 0.80 (0.80) | 1 of 2 |  |"
    assert lines[-1] == "| duo async | 4.8 (2.0) | 4.0 (2.0) | 2.00 (1.00) | 1.60 (0.80) | 1 of 2 |  |"
    heads, _, coding, maths = real_tables.by_category(cell).splitlines()
    assert heads.endswith("| llama.cpp k=2 | target alone | sync 1 | async |")
    assert coding == "| coding | 40 | 2.0 | 1.00 | 1.25 | 2.00 | 3.00 |"
    assert maths == "| math reasoning | 40 | 2.0 | 0.50 | 1.25 | 1.00 | 1.00 |"
    rows = list(extremes.of_real({"cells": [cell]}))
    assert [r.what.rpartition(" / ")[2] for r in rows] == [
        "llama.cpp's plain loop", "its own speculation (k=2)", "duo, target alone", "duo's best turn-taking",
    ]  # fmt: skip
    assert rows[0].ratios == pytest.approx([3, 1]) and rows[0].what.startswith("real pair, default options, greedy: ")


def test_three_runs_of_the_real_pair_are_one() -> None:
    slow, other = real_cell(), real_cell()
    for text in slow["arms"]["duo async"]:
        text["total_s"] *= 10
    other["arms"]["duo async"][0]["equal"] = False
    [cell] = real_rounds.merged([[real_cell()], [slow], [other]])
    assert cell["arms"]["duo async"][0]["total_s"] == real_cell()["arms"]["duo async"][0]["total_s"]
    assert [t["equal"] for t in cell["arms"]["duo async"]] == [False, False]
    lines = list(real_rounds.by_text(cell))
    assert lines[2:] == [
        "| coding | 40 | 11 |  | 2.40 | 1.50 |", "| math reasoning | 40 | 11 |  | 0.80 | 1.00 |",
        "| median (worst) | | | | 1.60 (0.80) | 1.25 (1.00) |",
    ]  # fmt: skip
    slow["arms"]["duo sync 9"] = slow["arms"]["duo async"]
    with pytest.raises(ValueError, match="different cells or arms"):
        real_rounds.merged([[real_cell()], [slow]])


def test_the_questions_for_real_models_are_of_seven_kinds() -> None:
    asked = real_questions.chosen(7)
    assert [q.category for q in asked] == list(real_questions.IDS)
    assert len({q.question_id for q in real_questions.chosen(14)}) == 14
    assert len({q.category for q in real_questions.chosen(2)}) == 2
    assert asked[0].prompt.startswith("<|im_start|>system\n") and asked[0].prompt.endswith("<|im_start|>assistant\n")


def test_the_page_about_drafts() -> None:
    row = {"pair": "A", "place": "Default options", "temperature": 0.8, "pass_ms": {"1": 10.0, "2": 11.0, "5": 15.0},
           "step_ms": {"1": 4.0}, "step_alone_ms": 3.0, "acceptance": [0.75, 0.8], "slowdown": 1.2, "n_sync": 2,
           "measured": {"plain": 30.0, "sync 2": 36.0, "async auto": 45.0}, "other_cores": 1.5,
           "advice": {"reasons": ["Async is the fastest."]}}  # fmt: skip
    text = draft_page.page({"machine": "M", "rows": [row, {**row, "pair": "B"}]}, SCRIPTED)
    cells = "T = 0.8 | 75 80 | 0.30, 0.40 | 1.10 - 1.50 - | 1.20 | 30.0 | 1.20 (2) | 1.50 |"
    assert f"| A | default options | {cells}" in text and "* A, default options, T = 0.8: Async is the fastest." in text
    assert "up to 1.5 cores meanwhile" in text
    assert (
        "| A box | 2.2 | Q4_K | 1.10, 1.50 | 0.03 | 0.6 | 1.60 | 1.50 | 0.90 | 1.70 (3) | 2.04 | 1.20 | 2.10 |" in text
    )
    assert len(re.findall(r"^\| qwen2.5-coder-32b \| 21.3, 2.1 \| 0.10 \| \d", text, re.MULTILINE)) == 1
    assert "Not measured yet" in draft_page.page(None, None)


def test_the_passes_that_stand_for_other_pairs_are_those_of_the_report() -> None:
    report = json.loads(REPORT.read_text("utf-8"))
    widths = report["steps"]["kernels"]["data"]["types"]["q4_K_M"]["widths"]
    measured = {int(w): x["duo"]["median"] for w, x in widths.items()}
    assert {w: round(measured[w], 3) for w in PASS_MS} == PASS_MS
    assert f"commit {report['commit']}" in PASS_MS_FROM


def test_a_step_without_its_models_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUO_REAL_MODELS", str(tmp_path))
    (real,) = (s for s in STEPS if s.needs)
    assert run_all.without(real) == list(real.needs) and not run_all.without(step())


def test_tables_that_a_script_prints_are_taken_over() -> None:
    out = "loading\n\nc = 0.01\n| a |\n|---|\n| 1 |\nasync: 1.00\n\nc = 0.2\n| b |\n|---|\n"
    assert report_page.printed(out) == "c = 0.01\n\n| a |\n|---|\n| 1 |\n\nasync: 1.00\n\nc = 0.2\n\n| b |\n|---|"


def test_the_page_says_where_it_comes_from(tmp_path: Path) -> None:
    assert about_machine.commit() != "unknown"
    info = tmp_path / "cpuinfo"
    info.write_text("processor: 0\nflags : fpu avx2 avx512f other\n")
    assert about_machine.flags(info) == ["avx2", "avx512f"]
    assert about_machine.flags(tmp_path / "none") == []


def test_every_step_is_complete() -> None:
    assert len({s.name for s in STEPS}) == len(STEPS)
    assert extremes.OF.keys() <= {s.name for s in STEPS} >= report_page.OWN.keys()
    assert sum(s.seconds for s in STEPS) < WHOLE_MINUTES * 60
    files = PairFiles(Path("build/bench"))
    for s in STEPS:
        command = s.command(files, Scale(0.01), Path("out.json"))
        assert command[-1] == "out.json" and all(isinstance(word, str) for word in command)
        module = ROOT / (command[1].replace(".", "/") + ".py")
        assert module.exists() or command[1] == "duo"


@pytest.mark.parametrize("name", ["report", "report-amx"])
def test_the_page_is_that_of_its_figures(name: str) -> None:
    report = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text("utf-8"))
    assert (ROOT / f"benchmarks/{name}.md").read_text("utf-8") == report_page.page(report)
    if name == "report":  # without what needs real models, a run is complete, too
        assert {s.name for s in STEPS if not s.needs} <= report["steps"].keys() <= {s.name for s in STEPS}


def test_measured_shows_lines_of_this_page() -> None:
    """So figures of several commits do not stand side by side there."""
    shown = (ROOT / "docs/measured.md").read_text("utf-8").partition("**A made pair.**")[2]
    page = (ROOT / "benchmarks/report.md").read_text("utf-8")
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(rows) > 8
    assert [row for row in rows if row not in page] == []
    assert json.loads(REPORT.read_text("utf-8"))["commit"] in shown


def test_the_readme_shows_figures_of_this_page() -> None:
    page = (ROOT / "benchmarks/report.md").read_text("utf-8")
    made = [row for row in (ROOT / "README.md").read_text("utf-8").splitlines() if row.startswith("| made")]
    spans = re.findall(r"\| default options, c = [\d.]+: async / the target alone ((?:\| [\d.]+ ){3}).*fresh", page)
    assert [" ".join(row.split("|")[2:5]) for row in made] == [" ".join(x.split("|")[1:]) for x in spans]


def test_no_folder_of_a_machine_gets_into_the_report() -> None:
    data = demo_pair()[0].parent
    text = run_all.without_folders(f"duo -m {ROOT}/build/bench/t600.gguf -md {data}/draft.gguf")
    assert text == "duo -m build/bench/t600.gguf -md src/duo/data/draft.gguf"
    for report in REPORT.parent.glob("report*.json"):
        assert str(ROOT) not in report.read_text("utf-8") and "site-packages" not in report.read_text("utf-8")


MAKES = [(["bench"], None), (["bench", "MINUTES=10"], "10"), (["torture"], None), (["torture", "MINUTES=20"], "20")]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(("arguments", "minutes"), mostly_daily(MAKES, [MAKES[1], MAKES[2]]))
def test_make_passes_on_the_minutes_that_were_named(arguments: list[str], minutes: str | None) -> None:
    """Without them each program has its own: the steps of `make bench` take 35, not what `make torture` takes."""
    names = {"MAKEFLAGS", "GNUMAKEFLAGS", "MAKELEVEL", "MFLAGS", "MINUTES"}  # of the make that runs the tests
    alone = {k: v for k, v in os.environ.items() if k not in names}
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    line = done.stdout.splitlines()[-1]
    assert f"benchmarks.{'run_all' if arguments[0] == 'bench' else 'torture'}" in line
    found = re.search(r"--minutes (\S+)", line)
    assert (found and found[1]) == minutes
