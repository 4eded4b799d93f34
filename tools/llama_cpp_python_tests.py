"""Runs llama-cpp-python's own tests with `duo.Duo` for `llama_cpp.Llama`, and with Llama itself, and compares.

    pip download --no-binary :all: --no-deps llama-cpp-python==0.3.36 && tar xf llama_cpp_python-0.3.36.tar.gz
    python tools/llama_cpp_python_tests.py llama_cpp_python-0.3.36
    python tools/llama_cpp_python_tests.py llama_cpp_python-0.3.36 --models FOLDER     the files that the tests download

Without `--models` small local models stand in for those of the hub. llama_cpp_python_cases.json names lines that only
the real ones meet, and says why a case may fail. Exit code 1: another one fails with Duo and not with Llama.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from llama_cpp_python_plugin import CLASS, MODELS
from server_cases import REFERENCE, Case, Reasons, fails_here, read_cases

ROOT = Path(__file__).resolve().parents[1]
RUNS = {REFERENCE: "Llama", "alone": "Duo", "draft": "Duo with a draft"}
# The other files never make a Llama.
FILES = ("test_llama",)


def prepare(sdist: Path, to: Path, reasons: Reasons) -> None:
    """A folder with the tests for each run, and the vocabularies where they look for them. reasons: of lines that are
    left out. Raises SystemExit: the sdist has no tests.
    """
    if not (sdist / "tests" / f"{FILES[0]}.py").is_file():
        raise SystemExit(f"{sdist} has no tests/{FILES[0]}.py; name an unpacked sdist of llama-cpp-python")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    (to / "vendor").symlink_to((sdist / "vendor").resolve())
    for run in RUNS:
        (to / run).mkdir()
        for file in FILES:
            text = (sdist / "tests" / f"{file}.py").read_text("utf-8")
            (to / run / f"{file}.py").write_text(reasons.without_lines(file, text, run), "utf-8")


def cases_of(folder: Path, run: str, models: Path | None) -> list[Case]:
    """Raises SystemExit: pytest has not run them."""
    paths = [str(ROOT / "tools"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, CLASS: run, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    found: list[Case] = []
    for file in FILES:
        report, log = folder / f"{file}-{run}.xml", folder / f"{file}-{run}.log"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "llama_cpp_python_plugin",
                   f"--junitxml={report}", f"{run}/{file}.py"]  # fmt: skip
        with log.open("w") as out:
            of_models = {} if models is None else {MODELS: str(models.resolve())}
            subprocess.run(command, cwd=folder, env=env | of_models, stdout=out, stderr=out, check=False)
        if not report.is_file():
            raise SystemExit(f"pytest has not run {file}; see {log}")
        found += read_cases(report, file, run=run)
    return found


def table(cases: list[Case]) -> str:
    """Markdown: a row for each case."""
    outcomes = {c.key_of_run: c.outcome for c in cases}
    rows = [f"| test | {' | '.join(RUNS.values())} |", "|---" * (1 + len(RUNS)) + "|"]
    for key in dict.fromkeys(c.key for c in cases):
        name = key.partition("::")[2].replace("|", "\\|")
        rows.append(f"| `{name}` | {' | '.join(outcomes.get((key, run), 'not run') for run in RUNS)} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="unpacked sdist of llama-cpp-python")
    parser.add_argument("--models", type=Path, help="folder with the real models, under the names of their files")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "llama_cpp_python_tests", help="folder for the run")
    given = parser.parse_args()
    reasons = Reasons.read(ROOT / "tools" / "llama_cpp_python_cases.json")
    lines = [x for x in reasons.lines if not (given.models and x[2] == "model")]
    prepare(given.folder, given.to, replace(reasons, lines=tuple(lines)))
    cases = [c for run in RUNS for c in cases_of(given.to, run, given.models)]
    print(table(cases))
    unexplained = [c for c in fails_here(cases) if not reasons.of(c)]
    for c in fails_here(cases):
        print(f"{c.key} ({RUNS[c.run]}): {reasons.of(c) or 'NOT EXPLAINED: ' + c.message}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
