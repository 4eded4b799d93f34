"""The guard in this process: children that hang, what is remembered, and who may ask. See test_guard.py."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import HANG_S

from duo import _core
from duo.placement import guard, kernels, trial

pytestmark = pytest.mark.full

KERNELS = _core.usable_kernels()

# ---- a hanging child


def test_a_child_that_hangs_is_ended(this_process: pytest.MonkeyPatch) -> None:
    this_process.setattr(trial, "TIMEOUT_S", 3.0)
    this_process.setenv("FAULTY", "CPU_REPACK=hang")
    found = guard.find(refresh=True)
    assert (found.verdicts["plain"], found.verdicts["CPU_REPACK"]) == (trial.WORKS, trial.HANGS)
    assert not found.extra_allowed and not _core.extra_buffers_allowed()
    assert found.warning.startswith("stock CPU_REPACK kernels do not finish here (60 s) and are not used; ")
    assert found.obstacle == ""
    (kept,) = json.loads(guard.cache_file().read_text()).values()
    assert kept["plain"] == trial.WORKS and "CPU_REPACK" not in kept, "the machine may have been paused"
    this_process.setenv("FAULTY", "")
    assert guard.find() is found
    assert guard.find(refresh=True).extra_allowed and _core.extra_buffers_allowed()


def test_a_child_that_never_begins_says_why(this_process: pytest.MonkeyPatch, tmp_path: Path) -> None:
    this_process.setattr(trial._core, "__file__", str(tmp_path / "nowhere.so"))
    with pytest.raises(trial.NotTriedError, match=r"^the child process ended with exit code 1: OSError: .*nowhere.so"):
        trial.try_products([], [])


def test_a_child_that_hangs_before_it_begins_says_so(this_process: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a library that cannot be loaded in time."""
    this_process.setattr(trial, "TIMEOUT_S", 2.0)
    this_process.setattr(trial, "__file__", str(tmp_path / "trial.py"))
    (tmp_path / "trial_child.py").write_text("import time\nwhile True: time.sleep(1)\n")
    with pytest.raises(trial.NotTriedError, match=r"^the child process did not finish \(2 s\)$"):
        trial.try_products([], [])


# ---- what is kept


@pytest.mark.daily
def test_findings_about_a_replaced_library_are_not_kept(this_process: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its digest cannot be had, so the next one of that kind would be taken for it."""
    library = tmp_path / "libggml-cpu.so"
    this_process.setattr(guard, "libraries", lambda: [library])
    for there in (False, True):
        guard.build.cache_clear()
        if there:
            library.write_bytes(b"a build")
        try:
            assert guard.find(refresh=True).verdicts["plain"] == trial.WORKS
            kernels.RACED.clear()
            kernels.speed_of("q8_0", 1)
        finally:
            guard.build.cache_clear()
            kernels.RACED.clear()
        assert guard.cache_file().exists() == there
        assert kernels.cache_file().exists() == (there and bool(KERNELS))


@pytest.mark.daily
def test_the_guard_can_be_asked_while_it_looks(this_process: pytest.MonkeyPatch) -> None:
    """As by a Duo that the garbage collector closes then."""
    asked: list[guard.Finding] = []
    ask = guard._ask

    def asking(known: Mapping[str, str]) -> guard.Finding:
        if not asked:
            asked.append(guard.Finding())
            asked.append(guard.find())
        return ask(known)

    this_process.setattr(guard, "_ask", asking)
    this_process.setattr(guard, "_guard", guard._Guard())
    thread = threading.Thread(target=guard.find, kwargs={"refresh": True}, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert not thread.is_alive()
    assert asked[1].verdicts["plain"] == trial.WORKS


def test_a_kind_that_is_announced_twice_is_one(this_process: pytest.MonkeyPatch) -> None:
    this_process.setattr(guard._core, "extra_buffers", lambda: ["CPU_REPACK", "CPU_REPACK"])
    found = guard.find(refresh=True)
    assert found.extra == ("CPU_REPACK",)
    assert len([line for line in found.lines() if "CPU_REPACK" in line]) == 1
