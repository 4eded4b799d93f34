"""Builds of llama.cpp: what is left out of them, and how two of them are compared."""

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S, run_python
from test_build import LEFT_OUT, ROOT

pytestmark = pytest.mark.full

# What llama-cpp-python's CMakeLists.txt does.
TOY = """cmake_minimum_required(VERSION 3.21)
project(llama_cpp LANGUAGES NONE)
set(LLAMA_BUILD_COMMON ON CACHE BOOL "" FORCE)
option(LLAMA_BUILD_COMMON "" ON)
message(STATUS "common: ${LLAMA_BUILD_COMMON}")
"""


@pytest.mark.parametrize("own", ["", "-DLLAMA_BUILD_COMMON=ON", "-DCMAKE_PROJECT_llama_cpp_INCLUDE=mine.cmake"])
def test_the_code_of_llamas_programs_is_left_out_unless_the_user_wants_it(own: str) -> None:
    environment = {**os.environ, "CMAKE_ARGS": f"-DGGML_RPC=on {own}"}
    command = [sys.executable, "tools/cmake_args.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    words = shlex.split(done.stdout)
    wanted = own or LEFT_OUT
    assert wanted in words and sum("LLAMA_BUILD_COMMON" in w or "_INCLUDE=" in w for w in words) == 1


def test_llama_cpp_pythons_build_takes_the_choice(tmp_path: Path) -> None:
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("no cmake")
    (tmp_path / "CMakeLists.txt").write_text(TOY)
    command = [cmake, "-S", tmp_path, "-B", tmp_path / "build"]
    for given, wanted in (([], "ON"), ([LEFT_OUT], "OFF")):
        done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=HANG_S, check=True)
        assert f"common: {wanted}" in done.stdout


BUILDS = """
import sys
sys.path.insert(0, sys.argv[1])
import run_builds
run_builds.RACE_US = 1000
print(run_builds.measure(int(sys.argv[2]), sys.argv[3:]))
"""


@pytest.mark.daily
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="binds itself to a core as Linux does")
def test_two_builds_can_be_compared() -> None:
    types = ("q8_0", "q4_K")
    done = run_python(BUILDS, ROOT / "benchmarks", str(min(os.sched_getaffinity(0))), *types)
    assert done.returncode == 0, done.stderr
    found = ast.literal_eval(done.stdout)
    assert len(found) == 2 * len(types) + 2 and all(us > 0 for us in found.values())
    assert all(found[f"{t} 64"] > found[f"{t} 1"] for t in types)
