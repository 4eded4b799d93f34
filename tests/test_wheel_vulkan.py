"""The wheel's plugin for GPUs with a Vulkan driver, on Mesa's software device."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import HANG_S
from test_packaging import environment_with
from wheels import TAG, has_plugin, wheel_for

from duo.models.demo import demo_pair

pytestmark = [pytest.mark.wheel, pytest.mark.slow]

DRIVERS = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd.*"))  # of Mesa's software device
TEXT = ["-m", str(demo_pair()[0]), "--temp", "0", "-n", "12", "-c", "256", "-p", "Once upon a time there was"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = wheel_for(TAG)
    if not has_plugin(wheel, "vulkan"):
        pytest.skip("this wheel has no Vulkan (make wheel VULKAN=on)")
    if not DRIVERS:
        pytest.skip("needs Mesa's software device (apt-get install mesa-vulkan-drivers)")
    return environment_with(wheel, tmp_path_factory.mktemp("wheel") / "environment", without="llama_cpp")


def run(python: Path, *words: str, driver: str | Path = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    """With this driver only, or with Mesa's. Its device is of type CPU, so it is only taken when it is named."""
    drivers = dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), str(driver or DRIVERS[0]))
    return subprocess.run(
        [python.with_name("duo"), *words], cwd=python.parent, env=os.environ | drivers | environment,
        capture_output=True, text=True, timeout=4 * HANG_S, check=False,
    )  # fmt: skip


def test_a_model_on_a_vulkan_device(python: Path, tmp_path: Path) -> None:
    listed = run(python, "devices", GGML_VK_VISIBLE_DEVICES="0")
    assert re.search(r"^Vulkan0: llvmpipe", listed.stdout, re.MULTILINE), listed.stdout + listed.stderr
    assert "no device" not in listed.stdout
    log = tmp_path / "log"
    on_device = run(python, *TEXT, "-ngl", "99", "--log-file", str(log), GGML_VK_VISIBLE_DEVICES="0")
    assert on_device.returncode == 0, on_device.stderr
    assert on_device.stdout == run(python, *TEXT, "-ngl", "0").stdout
    assert re.search(r"Vulkan0 model buffer size = +[1-9]", log.read_text())


@pytest.mark.parametrize("driver", ["", "/nowhere"])
def test_a_machine_without_a_gpu(python: Path, driver: str) -> None:
    """The loader finds a driver that computes on the CPU, or none: the wheel is as one without the plugin."""
    listed = run(python, "devices", driver=driver)
    assert "\nVulkan: no device, because no driver on this machine has a GPU\n" in listed.stdout
    assert listed.returncode == 0 and listed.stderr == ""
    text = run(python, *TEXT, driver=driver)
    assert text.returncode == 0 and len(text.stdout) > 12
