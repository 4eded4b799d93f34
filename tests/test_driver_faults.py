"""A call of a GPU's driver that fails in a pass is a sentence and not the end of the process. No GPU is needed."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_machine import Machine
from sizes import mostly_proof_of_two

WHY = "CUDA error: out of memory"
TEXT = ("-m", "duo", "-p", "Once upon a time", "--temp", "0", "-n", "80", "--ignore-eos")
Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def python(stand_in: Path, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Runs a program whose graphs fail after the first n_graphs."""
    cache = tmp_path_factory.mktemp("cache")
    return lambda n_graphs, *args: Machine(stand_in, cache, f"driver={n_graphs}").python(*args)


@pytest.fixture(scope="module")
def right(python: Python) -> str:
    done = python(10_000, *TEXT)
    assert done.returncode == 0, done.stderr
    return done.stdout


N_GRAPHS = (0, 1, 2, 9, 40)
OFTEN = (("async", 40),)
DAILY = (("plain", 1), ("sync", 9), ("async", 0))


@pytest.mark.parametrize(("mode", "n"), mostly_proof_of_two(("plain", "sync", "async"), N_GRAPHS, OFTEN, DAILY))
def test_what_was_written_stays(python: Python, right: str, n: int, mode: str) -> None:
    done = python(n, *TEXT, "--mode", mode)
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert right.startswith(done.stdout.rstrip("\n"))
    assert len(done.stdout) > 16 or n < 40
    assert done.stderr.count(WHY) == 1 and "Traceback" not in done.stderr, done.stderr
    assert "/build" not in done.stderr and "cuMemCreate" not in done.stderr, done.stderr


AGAIN = """
from duo import Duo, DuoError
for _ in range(2):
    try:
        with Duo(n_ctx=256) as d:
            for mode in ("plain", "async"):
                try:
                    d.generate("Once upon a time", max_tokens=60, mode=mode, ignore_eos=True)
                except DuoError as e:
                    print(type(e).__name__, e)
    except DuoError as e:
        print(type(e).__name__, e)
print("closed")
"""


def test_the_models_close_and_can_be_loaded_again(python: Python) -> None:
    done = python(20, "-c", AGAIN)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "closed", (done.stdout, done.stderr)
    assert len(lines) > 2 and WHY in lines[0], lines
    assert "free memory, and load it again" in lines[1], lines
