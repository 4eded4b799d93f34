"""How many threads pack weights for duo's kernels: as many as the user allows, whatever the sizes of the matrices."""

import os
import sys
from pathlib import Path

import pytest
from conftest import needs_kernels, run_python
from model_files import CHILD, Shape, random_model

pytestmark = [needs_kernels, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

# Each step in turn in one process: which threads it left there. OpenMP keeps those of a team.
STEPS = f"""{CHILD}
def started(step):
    before = set(os.listdir("/proc/self/task"))
    kept = step()
    print(len(set(os.listdir("/proc/self/task")) - before))
    return kept
"""


def test_experts_are_packed_by_all_threads(tmp_path: Path) -> None:
    """Each of them is too small for a team."""
    file = tmp_path / "model.gguf"
    model = random_model(file, "mixtral", lambda name: "q4_0" if "exps" in name else "f32", Shape(n_layer=1))
    load = "started(lambda: _core.SharedModel(options(sys.argv[1], ('q4_0',), n_threads={}), False))\n"
    r = run_python(STEPS + "a = " + load.format(1) + "b = " + load.format(3), model)
    assert (r.returncode, r.stdout.split()) == (0, ["0", "2"]), r.stderr


def test_a_race_packs_with_the_threads_that_it_measures() -> None:
    """And not with one for each processor, of which a container may allow a few only."""
    race = "started(lambda: _core.race('q4_0', [1], [2], 1))"
    r = run_python(STEPS + race, env=os.environ | {"OMP_NUM_THREADS": "5"})
    assert (r.returncode, r.stdout.split()) == (0, ["1"]), r.stderr
