"""OpenMP's variables that bind threads to CPUs: duo's own threads stay free, and the environment stays as it was."""

import logging
import os
from pathlib import Path

import pytest
from conftest import run_python

from duo._openmp import BINDING, unbound

LOADED = "import os; from duo import _core; print(len(os.sched_getaffinity(0)), os.environ['OMP_PROC_BIND'])"


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs on Linux"
)
def test_the_main_thread_keeps_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("GOMP_CPU_AFFINITY", "0")
    child = run_python(LOADED)
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == [str(len(os.sched_getaffinity(0))), "true"]


@pytest.mark.parametrize(
    ("variables", "library", "warned"),
    [
        ({"OMP_PLACES": "cores"}, "libgomp.so.1", True),
        ({"OMP_PLACES": "cores", "OMP_PROC_BIND": "FALSE"}, "libgomp.so.1", False),
        ({"OMP_PROC_BIND": "close"}, "libc.so.6", False),
        ({}, "libgomp.so.1", False),
    ],
)
def test_a_library_that_came_first_is_named(
    variables: dict[str, str], library: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for name in BINDING:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 00:01 1 /usr/lib/{library}\n")
    with caplog.at_level(logging.WARNING, "duo"), unbound(maps):
        assert not any(name in os.environ for name in BINDING)
    assert {name: os.environ[name] for name in BINDING if name in os.environ} == variables
    assert ("another library loaded OpenMP while OMP_PLACES was set" in caplog.text) == warned
