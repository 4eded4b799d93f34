"""A call of a GPU's driver that fails in a pass is a sentence and not the end of the process. No GPU is needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S

from duo import _core  # noqa: F401 (loads libllama)

STAND_IN = Path(__file__).parents[1] / "tools" / "failing_driver.c"
GGML = next(
    line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libggml-base" in line
)  # which duo has loaded
WHY = "CUDA error: out of memory"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("driver") / "driver.so"
    cc = shutil.which("cc") or pytest.skip("a C compiler is needed")
    subprocess.run([cc, "-shared", "-fPIC", "-fexceptions", "-o", where, STAND_IN, "-ldl"], check=True)
    return where


def after(n_graphs: int, stand_in: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {"LD_PRELOAD": str(stand_in), "GGML_BASE": str(GGML), "GRAPHS_MOST": str(n_graphs)}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=HANG_S, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 2, 9, 40])
@pytest.mark.parametrize("mode", ["plain", "sync", "async"])
def test_what_was_written_stays(stand_in: Path, n: int, mode: str) -> None:
    command = ["-m", "duo", "-p", "Once upon a time", "--temp", "0", "-n", "80", "--ignore-eos", "--mode", mode]
    right = after(10_000, stand_in, *command)
    assert right.returncode == 0, right.stderr
    done = after(n, stand_in, *command)
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert right.stdout.startswith(done.stdout.rstrip("\n"))
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


def test_the_models_close_and_can_be_loaded_again(stand_in: Path) -> None:
    done = after(20, stand_in, "-c", AGAIN)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "closed", (done.stdout, done.stderr)
    assert len(lines) > 2 and WHY in lines[0], lines
    assert "free memory, and load it again" in lines[1], lines
