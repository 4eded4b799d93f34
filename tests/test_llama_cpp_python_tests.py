"""tools/llama_cpp_python_tests.py: llama-cpp-python's own tests with `Duo` for `Llama`, without running them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from llama_cpp_python_tests import FILES, RUNS, prepare, table  # noqa: E402
from server_cases import REFERENCE, Case, Reasons  # noqa: E402

# A line for each of those that the table of reasons names.
TESTS = """def test_it():
    assert tokens == [9419, 11, 1814, 0]
    assert output["choices"][0]["text"] == " jumps over the lazy dog."
    assert output["choices"][0]["text"] == "true"
    assert output["choices"][0]["text"].lower().startswith("rot")
    assert number_1 != number_2
    assert number_1 == number_3
    assert llama._ctx.ctx is not None
    assert model._is_recurrent is is_recurrent
"""


def test_lines_that_cannot_hold_are_left_out(tmp_path: Path) -> None:
    reasons = Reasons.read(ROOT / "tools" / "llama_cpp_python_cases.json")
    (tmp_path / "sdist" / "tests").mkdir(parents=True)
    with pytest.raises(SystemExit, match="name an unpacked sdist of llama-cpp-python"):
        prepare(tmp_path / "sdist", tmp_path / "run", reasons)
    (tmp_path / "sdist" / "tests" / f"{FILES[0]}.py").write_text(TESTS)
    prepare(tmp_path / "sdist", tmp_path / "run", reasons)
    for run in RUNS:
        left = (tmp_path / "run" / run / f"{FILES[0]}.py").read_text()
        kept = re.findall("(?m)^    assert (.+)$", left)
        private = ["llama._ctx.ctx is not None", "model._is_recurrent is is_recurrent"]
        assert kept == ["number_1 == number_3", *(private if run == REFERENCE else [])]


def test_a_row_for_each_case() -> None:
    outcomes = {REFERENCE: "passed", "alone": "failed"}
    cases = [Case("test_llama", "test_one[a|b]", run, outcome, "") for run, outcome in outcomes.items()]
    head, line, row = table(cases).splitlines()
    assert head == "| test | Llama | Duo | Duo with a draft |" and line.count("|") == head.count("|")
    assert row == r"| `test_one[a\|b]` | passed | failed | not run |"
