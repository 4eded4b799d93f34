"""Nothing on a GPU ends the process: no memory there, a device that is lost, models that come and go."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S, run_python
from gpu_device import NAME, PROMPTS, VULKAN, child, needs_gpu

from duo import Duo

pytestmark = needs_gpu
needs_cuda = pytest.mark.skipif(not NAME.startswith("CUDA"), reason="fills the memory by CUDA's runtime")
needs_vulkan = pytest.mark.skipif(not VULKAN, reason="the stand-in is a Vulkan library")

# Stands before the driver, and lets calls fail.
STAND_IN = Path(__file__).parents[1] / "tools" / "gpu_calls.c"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("vulkan")
    cc = shutil.which("cc") or pytest.skip("a C compiler is needed")
    subprocess.run([cc, "-shared", "-fPIC", "-o", where / "vk.so", STAND_IN, "-ldl"], check=True)
    return where / "vk.so"


def duo_with(stand_in: Path, *options: str, **limits: int) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"LD_PRELOAD": str(stand_in)} | {name: str(n) for name, n in limits.items()}
    command = child(*options, "-p", "Once upon a time", "--temp", "0", "-c", "512")
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, env=environment)


@needs_vulkan
def test_the_stand_in_alone_changes_nothing(stand_in: Path) -> None:
    done = duo_with(stand_in, "-n", "8", "-ngl", "99", "-ngld", "99")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Once upon a time")


@needs_vulkan
@pytest.mark.parametrize("most", [0, 1_000_000, 4_000_000])
def test_no_memory_on_the_device_is_a_sentence(stand_in: Path, most: int) -> None:
    done = duo_with(stand_in, "-n", "8", "-ngl", "99", "-ngld", "0", VK_MOST_BYTES=most)
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert any("memory" in line or "could not be" in line for line in done.stderr.splitlines()), done.stderr


@needs_vulkan
@pytest.mark.parametrize("layers", ["99", "2"])
def test_a_lost_device_ends_the_text_with_a_sentence(stand_in: Path, layers: str) -> None:
    for most in (40, 200):
        done = duo_with(
            stand_in, "-n", "60", "--ignore-eos", "-ngl", layers, "--mode", "plain", VK_MOST_SUBMISSIONS=most
        )
        assert done.returncode == 1, (most, done.returncode, done.stderr)
        assert "Traceback" not in done.stderr and "terminate called" not in done.stderr
        last = done.stderr.strip().splitlines()[-1]
        assert "failed" in last or "could not" in last, done.stderr


@needs_vulkan
def test_a_draft_on_a_lost_device_costs_no_text(stand_in: Path) -> None:
    want = duo_with(stand_in, "-n", "40", "--ignore-eos", "-ngl", "0", "-ngld", "0", "--mode", "plain")
    assert want.returncode == 0, want.stderr
    done = duo_with(stand_in, "-n", "40", "--ignore-eos", "-ngl", "0", "-ngld", "99", "--no-op-offload",
                    VK_MOST_SUBMISSIONS=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == want.stdout


# Takes all of the device's memory but so many MiB, until its input ends.
HOG = """
import ctypes, sys
from duo import _core  # loads CUDA's runtime
cuda = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line))
free, total, memory = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(free.value - (int(sys.argv[1]) << 20))) == 0
print("full", flush=True)
sys.stdin.read()
"""


# A process that uses CUDA takes about 500 MiB before it has allocated anything.
@needs_cuda
@pytest.mark.parametrize("left", [64, 500, 600, 700, 1000, 2000])
def test_a_device_that_others_fill_is_left_alone_or_a_sentence(left: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOG, str(left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as hog:
        assert hog.stdin is not None and hog.stdout is not None
        assert hog.stdout.readline() == "full\n"
        for options in ([], ["-ngl", "all", "-ngld", "all"]):
            command = child(*options, "-n", "8", "--temp", "0", "-c", "512", "-p", "Once upon a time")
            done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
            assert done.returncode in ((0, 1) if options else (0,)), (options, done.stderr)
            assert "Traceback" not in done.stderr
        hog.stdin.close()


def test_models_come_and_go() -> None:
    for i in range(50):
        with Duo(n_ctx=256, n_gpu_layers=i % 6, n_gpu_layers_draft="all") as d:
            assert len(d.generate(PROMPTS[0], max_tokens=1, temperature=0).tokens) == 1
        if i == 9:
            before = threads_and_bytes()
    after = threads_and_bytes()
    assert after[0] <= before[0]
    assert after[1] < before[1] + 60e6


def threads_and_bytes() -> tuple[int, int]:
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["Threads"]), int(status["VmRSS"].split()[0]) * 1024


def test_two_processes_on_one_device() -> None:
    command = child("-p", "Once upon a time", "--temp", "0", "-n", "12", "-ngl", "99", "-ngld", "99", "--mode", "plain")
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    texts = [p.communicate(timeout=2 * HANG_S)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert texts[0] == texts[1] != b""


CLOSED = """
import sys, threading
from duo import DuoError
from duo.gguf_tools.switched_duo import SwitchedDuo
d = SwitchedDuo(n_ctx=512, n_gpu_layers="all", n_gpu_layers_draft="all", always=True)
found = []
def write():
    try:
        while True:
            d.generate("Once upon a time", max_tokens=400, ignore_eos=True)
    except DuoError as e:
        found.append(str(e))
t = threading.Thread(target=write)
t.start()
threading.Event().wait(float(sys.argv[1]))
d.close()
t.join()
print(found)
"""


@pytest.mark.parametrize("after_s", [0.05, 0.5, 2.0])
def test_a_context_is_closed_while_it_works(after_s: float) -> None:
    done = run_python(CLOSED, str(after_s))
    assert done.returncode == 0, done.stderr
    assert "closed" in done.stdout and done.stdout.count("'") == 2, done.stdout
