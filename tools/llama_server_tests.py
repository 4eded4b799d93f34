"""Runs llama-server's own unit tests against `duo serve`, with and without a draft, and says which differ and why.

    pip download --no-binary :all: --no-deps llama-cpp-python==0.3.36 && tar xf llama_cpp_python-0.3.36.tar.gz
    python tools/llama_server_tests.py llama_cpp_python-0.3.36                       all files, twice (an hour)
    python tools/llama_server_tests.py llama_cpp_python-0.3.36 test_basic --draft no   one file, once
    python tools/llama_server_tests.py llama_cpp_python-0.3.36 --server build/bin/llama-server --json found.json

The last one runs them against a llama-server. What later runs add to the same `--json` is compared with it.

The tests want models from the hub. Without `--hub`, small local models stand in (server_stand_ins.py): texts are not
compared then, and what depends on the vocabulary fails. llama_server_cases.json says why a case may fail; exit code 1:
another one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from server_cases import REFERENCE, RUNS, Case, Reasons, explained, fails_here, read_cases, table
from server_stand_ins import write_cache
from server_tests_plugin import REAL, REFERENCE_PROGRAM

from duo.models.demo import demo_pair

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "--timeout", "150")


def folder_of_tests(folder: Path) -> Path:
    """llama.cpp's tools/server/tests in an sdist of llama-cpp-python or a tree of llama.cpp. Raises SystemExit."""
    for inside in ("vendor/llama.cpp/tools/server/tests", "tools/server/tests", "."):
        if (folder / inside / "utils.py").is_file():
            return (folder / inside).resolve()
    raise SystemExit(f"{folder} has no tools/server/tests; name an unpacked sdist of llama-cpp-python")


def prepare(tests: Path, to: Path, reasons: Reasons, run: str, *, hub: bool) -> Path:
    """A folder in which the tests may write, with llama.cpp's templates where they look for them: that of the tests.
    Lines that do not hold for the stand-ins, or by duo's choice, are left out there."""
    shutil.rmtree(to, ignore_errors=True)
    copy = to / "tools" / "server" / "tests"
    shutil.copytree(tests, copy)
    (copy / "tmp").mkdir(exist_ok=True)
    (to / "no_models").mkdir()
    picture = tests.parents[1] / "mtmd" / "test-1.jpeg"  # test_security looks for it beside its own folder
    if picture.is_file():
        (to / "tools" / "mtmd").mkdir()
        shutil.copyfile(picture, to / "tools" / "mtmd" / picture.name)
    for file in () if hub else (copy / "unit").glob("test_*.py"):
        file.write_text(reasons.without_lines(file.stem, file.read_text("utf-8"), run), "utf-8")
    utils = (copy / "utils.py").read_text("utf-8")  # which forgets that names of headers have no case
    (copy / "utils.py").write_text(utils.replace("dict(response.headers)", "response.headers"), "utf-8")
    models = tests.parents[2] / "models"
    (to / "models").symlink_to(models)
    if not hub:
        write_cache(to / "hub", models)
    return copy


def check_free(port: int) -> None:
    """Raises SystemExit: another server has the port."""
    with socket.socket() as s:
        if s.connect_ex(("127.0.0.1", port)) == 0:
            raise SystemExit(f"another server answers on port {port}; give a free one (--port)")


@dataclass(frozen=True)
class Runner:
    """Runs files of the tests in a folder that `prepare` has made."""

    copy: Path
    run: str  # key of RUNS
    server: Path | None  # a llama-server, in place of duo
    hub: bool
    port: int
    keep: str | None  # pytest's -k
    limit_s: int

    def environment(self) -> dict[str, str]:
        to = self.copy.parents[2]
        not_ours = ("LLAMA_ARG_", "HF_", "LLAMA_CACHE", REFERENCE_PROGRAM)
        own = {k: v for k, v in os.environ.items() if not k.startswith(not_ours)}
        return own | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PORT": str(self.port),
            "DUO_TESTS_NO_MODELS": str(to / "no_models"),
            "DUO_TESTS_DRAFT": str(demo_pair()[1]) if self.run == "draft" else "",
            **({REFERENCE_PROGRAM: str(self.server)} if self.server else {}),
            **({REAL: "1"} if self.hub else {"LLAMA_CACHE": str(to / "hub"), "HF_HUB_OFFLINE": "1"}),
        }

    def cases(self, file: str) -> list[Case]:
        """The cases of one file. Raises SystemExit: pytest could not run it in time."""
        report = self.copy.parents[2] / f"{file}-{self.run}.xml"
        check_free(self.port)  # the tests take whatever answers there for their own server
        chosen = ("-k", self.keep) if self.keep else ()
        command = [sys.executable, "-m", "pytest", *PYTEST, "-p", "server_tests_plugin", f"--junitxml={report}",
                   *chosen, f"unit/{file}.py"]  # fmt: skip
        log = report.with_suffix(".log")
        with log.open("w") as out:
            try:
                subprocess.run(command, cwd=self.copy, env=self.environment(), stdout=out, stderr=out,
                               timeout=self.limit_s, check=False)  # fmt: skip
            except subprocess.TimeoutExpired:
                raise SystemExit(f"{file} took more than {self.limit_s} s; see {log}") from None
        if not report.is_file():
            raise SystemExit(f"pytest has not run {file}; see {log}")
        return read_cases(report, file, run=self.run)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="unpacked sdist of llama-cpp-python, or a tree of llama.cpp")
    parser.add_argument("files", nargs="*", help="such as test_basic (default: all)")
    parser.add_argument("--draft", choices=("no", "yes", "both"), default="both", help="guesses of the demo draft")
    parser.add_argument("--server", type=Path, help="a llama-server, which is run in place of duo")
    parser.add_argument("--hub", action="store_true", help="download the real models")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-k", dest="keep", help="pytest's -k: some cases only")
    parser.add_argument("--limit", type=int, default=1800, help="seconds for a file (default: 1800)")
    parser.add_argument("--json", type=Path, help="write all cases to this file; what it has of other runs stays")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "llama_server_tests", help="folder for the run")
    given = parser.parse_intermixed_args()
    if given.server and not given.server.is_file():
        raise SystemExit(f"there is no llama-server {given.server}")
    tests = folder_of_tests(given.folder)
    files = given.files or sorted(f.stem for f in (tests / "unit").glob("test_*.py"))
    reasons = Reasons.read(ROOT / "tools" / "llama_server_cases.json")
    runs = (
        (REFERENCE,) if given.server else {"no": ("alone",), "yes": ("draft",), "both": ("alone", "draft")}[given.draft]
    )
    copy = prepare(tests, given.to.resolve(), reasons, runs[0], hub=given.hub)
    cases = [Case(**c) for c in json.loads(given.json.read_text())] if given.json and given.json.is_file() else []
    for run in runs:
        runner = Runner(copy, run, given.server and given.server.resolve(), given.hub, given.port, given.keep,
                        given.limit)  # fmt: skip
        for file in files:
            found = runner.cases(file)
            done = {c.key_of_run for c in found}
            cases = [c for c in cases if c.key_of_run not in done] + found
            for c in found:
                if c.outcome == "failed":
                    print(f"{c.key} ({RUNS[run]}): {reasons.of(c) or 'NOT EXPLAINED: ' + c.message}", flush=True)
            if given.json:
                given.json.write_text(json.dumps([c.__dict__ for c in cases], indent=1) + "\n")
    print(table(cases, reasons), explained(cases, reasons), sep="\n\n")
    return 1 if any(not reasons.of(c) for c in fails_here(cases)) else 0


if __name__ == "__main__":
    sys.exit(main())
