"""Which tests run: what marks mean, and what a run says of those that were left out. conftest.py has these hooks."""

import importlib
import os
from contextlib import suppress
from pathlib import Path

import pytest
from needs import advice

SLOW_S = 400  # the bound of a test that is marked slow; the others' is in pyproject.toml
WITH_TORCH = ("test_train.py", "test_train_faults.py", "test_train_mixture.py", "test_train_runs.py")


def pytest_collection(session: pytest.Session) -> None:
    """Each process that runs beside others imports its share of the files first. The first import rewrites a file's
    assertions, which takes 14 s for all files, and keeps the result for the other processes."""
    n = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if n > 1 and session.config.args == session.config.getini("testpaths"):
        first = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        for path in sorted(Path(__file__).parent.glob("test_*.py"))[first::n]:
            if not pytest_ignore_collect(path, session.config):
                with suppress(Exception):  # pytest imports it again and reports the error
                    importlib.import_module(path.stem)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> "bool | None":
    # PyTorch takes seconds to import, in every process, and all tests of these files are daily.
    return True if collection_path.name in WITH_TORCH and "daily" not in config.getoption("markexpr") else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "real" in config.getoption("markexpr"):
        os.environ["GGML_CPU_TILED_MM"] = "0"  # one process has all real models, and strict ones are not the first
    for item in items:
        if item.path.name.startswith(("test_remote", "test_rpc")):
            item.add_marker("remote")
        if item.path.name.startswith("test_gpu"):
            item.add_marker("gpu")
        by_mark = config.getoption("timeout") is None and not item.get_closest_marker("timeout")
        if item.get_closest_marker("slow") and by_mark:
            item.add_marker(pytest.mark.timeout(SLOW_S))
    # Files with slow tests go first: none of them is left over for one process at the end.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for mark in ("proof", "daily", "gpu", "real", "wheel"):
        if mark not in config.getoption("markexpr"):  # whatever else -m says
            others = [item for item in items if item.get_closest_marker(mark)]
            items[:] = [item for item in items if item not in others]
            config.hook.pytest_deselected(items=others)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if line := advice(str(report.longrepr) for report in terminalreporter.getreports("skipped")):
        terminalreporter.write_line(line, yellow=True)
    if terminalreporter.stats.keys() - {""} == {"deselected"}:  # "": set-ups and ends
        terminalreporter.write_line("these tests belong to another run: pytest -m daily FILE", yellow=True)
