"""Kernels that crash are not used: a child dies of them first. faulty_ggml.cpp stands in for the machine."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import run_python
from faulty_machine import Machine
from model_files import random_model
from sizes import mostly_daily

from duo import Duo, _core
from duo._libs import library_dir

pytestmark = pytest.mark.full

PROMPT = ("-p", "Once upon a time", "-n", "12", "--temp", "0", "-t", "2")
CRASHES = ("SIGILL", "SIGSEGV", "SIGBUS")
KERNELS = _core.usable_kernels()

MachineMaker = Callable[..., Machine]


@pytest.fixture
def machine(stand_in: Path, tmp_path: Path) -> MachineMaker:
    """A machine with these faults, which remembers nothing yet."""
    return lambda faults="", **more: Machine(stand_in, tmp_path / "cache", faults, more)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a type that stock ggml puts into an extra buffer on this machine."""
    return random_model(tmp_path_factory.mktemp("guard") / "q4_0.gguf", "llama", "q4_0")


PLAIN_TEXT = """
import sys
from duo import Duo, _core
from duo.placement import guard
guard.find()
_core.allow_extra_buffers(False)
with Duo(sys.argv[1], n_ctx=256, n_threads=2, cpu_kernels="stock") as d:
    print("Once upon a time" + d.generate("Once upon a time", max_tokens=12, temperature=0).text)
"""


@pytest.fixture(scope="session")
def plain_text(model: Path) -> str:
    """What stock kernels write from plain buffers where nothing is faulty."""
    child = run_python(PLAIN_TEXT, model)
    assert child.returncode == 0, child.stderr
    return child.stdout


def lines_of(err: str, what: str) -> list[str]:
    return [line for line in err.splitlines() if what in line]


# ---- a text


@pytest.mark.slow
@pytest.mark.parametrize("how", mostly_daily([*CRASHES, "wrong", "exit", "kill"], ["wrong"]))
def test_buffers_whose_products_fail_are_not_used(
    how: str, machine: MachineMaker, model: Path, plain_text: str
) -> None:
    there = machine(f"AMX={how}")
    done = there.duo("-m", model, *PROMPT, "-c", "256", "--cpu-kernels", "stock")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain_text
    (line,) = lines_of(done.stderr, "AMX")
    end = {"wrong": "give wrong products here", "exit": "crash here (exit code 3)", "kill": "crash here (SIGKILL)"}
    assert line.startswith(
        f"duo: stock AMX kernels {end.get(how, f'crash here ({how})')} and are not used; to repair them: "
    )
    assert "pip install --force-reinstall" in line
    # What may have been the system's doing is not held against the machine.
    assert [v.get("AMX") for v in json.loads(there.record.read_text()).values()] == [
        None if how in ("exit", "kill") else how
    ]


@pytest.mark.daily
def test_the_stand_in_kills_whoever_uses_those_buffers(machine: MachineMaker, model: Path) -> None:
    """Else the tests above could not fail."""
    there = machine("AMX=SIGILL")
    run = ("-m", model, *PROMPT, "--cpu-kernels", "stock")
    assert there.duo(*run).returncode == 0
    there.record.write_text(there.record.read_text().replace("SIGILL", "works"))
    assert there.duo(*run).returncode == -signal.SIGILL


def test_duos_kernels_do_the_work(machine: MachineMaker, model: Path) -> None:
    if not KERNELS:
        pytest.skip("no instruction set that duo has kernels for")
    with Duo(model, n_ctx=256, cpu_kernels="duo") as d:
        right = d.generate("Once upon a time", max_tokens=12, temperature=0).text
    done = machine("AMX=SIGSEGV").duo("-m", model, *PROMPT, "--cpu-kernels", "duo")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Once upon a time{right}\n"
    assert len(lines_of(done.stderr, "AMX")) == 1


@pytest.mark.daily
def test_the_finding_is_remembered_until_another_build_comes(machine: MachineMaker, tmp_path: Path) -> None:
    there = machine("AMX=SIGSEGV")
    assert there.duo("devices").returncode == 0
    there.more["FAULTY_FORK"] = "1"  # so no child can be asked again
    known = there.duo("devices")
    assert "stock AMX kernels: crash here (SIGSEGV); not used; to repair them: " in known.stdout
    libraries = tmp_path / "lib"
    shutil.copytree(library_dir(), libraries)
    for library in libraries.glob("libggml-cpu.so*"):
        library.write_bytes(library.read_bytes() + b"another build")
    there.more["LLAMA_CPP_LIB_PATH"] = str(libraries)
    unknown = there.duo("devices")
    assert "stock AMX kernels: not tried (no child process can be started: " in unknown.stdout
    del there.more["FAULTY_FORK"]
    there.faults = "AMX=SIGILL"
    assert "stock AMX kernels: crash here (SIGILL)" in there.duo("devices").stdout
    assert [v["AMX"] for v in json.loads(there.record.read_text()).values()] == ["SIGSEGV", "SIGILL"]


ONE_CHILD = """
import subprocess, sys
from duo import Duo, _core
started = []
class Counted(subprocess.Popen):
    def __init__(self, *args, **more):
        started.append(args)
        super().__init__(*args, **more)
subprocess.Popen = Counted
for _ in range(2):
    Duo(sys.argv[1], n_ctx=256).close()
children = [args for (args,) in started if any("trial_child" in x for x in args)]
assert len(children) == 1, children
assert not _core.extra_buffers_allowed()
"""


@pytest.mark.daily
def test_a_cache_that_cannot_be_written_costs_one_child_a_process(machine: MachineMaker, model: Path) -> None:
    there = machine("AMX=wrong")
    there.cache.mkdir()
    (there.cache / "duo").write_text("a file where the folder should be")
    for _ in range(2):
        done = there.python("-c", ONE_CHILD, model)
        assert done.returncode == 0, done.stderr
        (line,) = done.stderr.splitlines()  # in Python the line goes to the log, whose default is here
        assert line.startswith("stock AMX kernels give wrong products here")


def test_without_child_processes_only_amx_is_left_out(machine: MachineMaker, model: Path, plain_text: str) -> None:
    there = machine("AMX=not at all", FAULTY_FORK="1")
    done = there.duo("-m", model, *PROMPT, "--cpu-kernels", "stock")
    assert (done.returncode, done.stdout) == (0, plain_text)
    (line,) = lines_of(done.stderr, "AMX")
    assert line.startswith("duo: stock AMX kernels are not used because they could not be tried (no child process")
    assert not there.record.exists()
    there.faults = ""
    done = there.duo("devices")
    assert done.returncode == 0
    assert "stock CPU_REPACK kernels: not tried (no child process can be started: " in done.stdout
    assert "not used" not in done.stdout


# ---- no stock kernels, and duo's


@pytest.mark.parametrize(
    "command",
    mostly_daily(
        [["-p", "x"], ["devices"], ["doctor"], ["draft-host"], ["verify-host"], ["rpc-server", "-p", "0"]],
        [["-p", "x"]],
    ),
)
def test_a_crash_of_stock_kernels_is_reported(command: list[str], machine: MachineMaker) -> None:
    done = machine("plain=SIGILL").duo(*command)
    assert done.returncode == 1
    (line,) = lines_of(done.stderr, "duo: ")
    assert line.startswith(
        "duo: llama.cpp's stock kernels crash here (SIGILL), so duo cannot compute on this machine; "
    )


@pytest.mark.skipif(len(KERNELS) < 2, reason="this machine has no two instruction sets that duo has kernels for")
def test_an_instruction_set_that_crashes_gives_way_to_the_next(machine: MachineMaker, model: Path) -> None:
    first, second, *others = KERNELS
    there = machine(f"duo {first}=SIGILL")
    done = there.duo("-m", model, *PROMPT, "--cpu-kernels", "duo")
    assert done.returncode == 0, done.stderr
    line = f"duo: duo's {first} kernels crash here (SIGILL); its {second} kernels are used instead"
    assert line in done.stderr.splitlines()
    there.faults = ",".join(f"duo {name}=SIGSEGV" for name in KERNELS)
    for again in (False, True):
        assert there.python("-c", f"from duo.placement import guard; guard.find(refresh={again})").returncode == 0
        out = there.duo("devices").stdout
        if not again:
            assert f"CPU kernels: duo ({second})" in out
            assert f"duo's {first} kernels: crash here (SIGILL); not used" in out
            assert f"duo's {second} kernels: work" in out
    assert "CPU kernels: stock; duo's kernels crash here" in out
    assert all(f"duo's {name} kernels: crash here (SIGSEGV); not used" in out for name in (first, second, *others))
    done = there.duo("-m", model, *PROMPT)
    assert done.returncode == 0
    assert len(lines_of(done.stderr, "stock kernels are used instead")) == 1


# ---- the report


ONE_RACE = """
from duo import _core
from duo.cli.main import main
_core.kernel_types = lambda: ["q8_0"]  # all of them take a minute on a slow machine
raise SystemExit(main(["devices", "--measure"]))
"""


@pytest.mark.daily
def test_devices_leaves_out_kernels_that_crash(machine: MachineMaker) -> None:
    done = machine("AMX=SIGILL").python("-c", ONE_RACE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stock AMX kernels: crash here (SIGILL); not used; to repair them: ") == 1
    assert "stock kernels: work" in done.stdout.splitlines()


@pytest.mark.daily
def test_doctor_shows_the_finding_and_asks_again(machine: MachineMaker, model: Path) -> None:
    there = machine("AMX=SIGSEGV")
    assert there.duo("devices").returncode == 0
    there.faults = "AMX=not at all"
    known = there.duo("devices")
    assert "stock AMX kernels: crash here (SIGSEGV)" in known.stdout
    done = there.duo("doctor", "-t", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trial"]["verdicts"]["AMX"] == "works"
    assert "stock AMX kernels: work" in there.duo("devices").stdout.splitlines()
