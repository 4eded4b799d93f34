"""The wheel's plugin for NVIDIA's GPUs where there is none: it cannot be run here, but it must not be in the way."""

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import HANG_S
from test_packaging import environment_with
from wheels import ROOT, TAG, has_plugin, wheel_for

from duo.models.demo import demo_pair

pytestmark = [pytest.mark.wheel, pytest.mark.slow]

PACKAGES = ROOT / "build" / "wheel" / "cuda" / "nvidia"  # cuBLAS among them
TEXT = ["-m", str(demo_pair()[0]), "--temp", "0", "-n", "12", "-c", "256", "-p", "Once upon a time there was"]
NO_GPU = "\nCUDA: no device, because no driver on this machine has a GPU\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = wheel_for(TAG)
    if not has_plugin(wheel, "cuda"):
        pytest.skip("this wheel has no CUDA (make wheel-cuda)")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return environment_with(wheel, tmp_path_factory.mktemp("wheel") / "environment", without="llama_cpp")
    pytest.skip("this machine has a driver of NVIDIA")


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A folder with a driver that finds no GPU: what the plugin was linked with."""
    (tmp_path / "libcuda.so.1").symlink_to(PACKAGES / "cu13" / "lib" / "stubs" / "libcuda.so")
    return tmp_path


@pytest.fixture
def cublas(python: Path) -> None:
    """As after `pip install 'duo-llama[cuda]'`."""
    (site,) = python.parents[1].glob("lib/python3.*/site-packages")
    if not (site / "nvidia").exists():
        (site / "nvidia").symlink_to(PACKAGES)


def run(python: Path, *words: str, libraries: Path | str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python.with_name("duo"), *words], cwd=python.parent, env=os.environ | {"LD_LIBRARY_PATH": str(libraries)},
        capture_output=True, text=True, timeout=4 * HANG_S, check=False,
    )  # fmt: skip


def test_a_machine_without_a_driver(python: Path) -> None:
    listed = run(python, "devices")
    said = r"^CUDA: no device, because its driver cannot be loaded \(libcuda.so.1: .*\); install the GPU's driver$"
    assert re.search(said, listed.stdout, re.MULTILINE), listed.stdout
    assert listed.returncode == 0 and listed.stderr == ""
    text = run(python, *TEXT, "-ngl", "99")
    assert text.returncode == 0 and text.stdout == run(python, *TEXT, "-ngl", "0").stdout != ""


def test_a_driver_and_no_cublas(python: Path, driver: Path) -> None:
    listed = run(python, "devices", libraries=driver)
    said = r"^CUDA: no device, because its plugin cannot be loaded \(libcublas.*\); run pip install 'duo-llama.cuda.'$"
    assert re.search(said, listed.stdout, re.MULTILINE), listed.stdout
    assert listed.returncode == 0 and listed.stderr == ""


@pytest.mark.usefixtures("cublas")
def test_a_driver_without_a_gpu(python: Path, driver: Path) -> None:
    """The plugin is loaded, with cuBLAS beside duo's package."""
    listed = run(python, "devices", libraries=driver)
    assert NO_GPU in listed.stdout and listed.returncode == 0 and listed.stderr == ""
    text = run(python, *TEXT, "-ngl", "99", libraries=driver)
    assert text.returncode == 0 and len(text.stdout) > 12
