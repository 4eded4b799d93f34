"""What duo says of a wheel's plugins for GPUs that have no device."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from duo import _core
from duo.cli.main import main
from duo.placement import plugins
from duo.placement.devices import Device

TOOLS = Path(__file__).parents[1] / "tools"
DRIVER = "int cuDriverGetVersion(int * version) {{ *version = {}; return 0; }}\n"
NO_GPU = "no driver on this machine has a GPU"


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a wheel: a folder with llama.cpp beside duo's own files."""
    monkeypatch.setattr(plugins, "is_bundled", lambda: True)
    monkeypatch.setattr(plugins, "library_dir", lambda: tmp_path)
    return tmp_path


def test_a_plugin_without_a_device_says_why(
    libraries: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugins, "devices", lambda: [Device("CPU", "a CPU", "cpu", 1, 1)])
    assert plugins.without_devices() == {}
    plugin = libraries / "libggml-vulkan.so"
    plugin.write_text("not a library")
    (said,) = plugins.lines()
    assert re.fullmatch(
        r"Vulkan: no device, because its plugin cannot be loaded \(.*\); install the GPU's driver", said
    )
    plugin.unlink()
    plugin.symlink_to(_core.__file__)  # some library that can be loaded
    assert main(["devices"]) == 0
    assert f"\nVulkan: no device, because {NO_GPU}\n" in capsys.readouterr().out
    monkeypatch.setattr(plugins, "devices", lambda: [Device("Vulkan0", "a GPU", "gpu", 1, 1)])
    assert plugins.lines() == []


def test_cuda_needs_a_driver_of_its_release_and_cublas(
    libraries: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cc = shutil.which("cc") or pytest.skip("a C compiler is needed")
    folder = tmp_path_factory.mktemp("drivers")

    def driver(version: int) -> Path:
        source, library = folder / f"{version}.c", folder / f"{version}.so"
        source.write_text(DRIVER.format(version))
        subprocess.run([cc, "-shared", "-fPIC", "-o", library, source], check=True)
        return library

    def why(driver: Path) -> str:
        monkeypatch.setattr(plugins, "CUDA_DRIVER", str(driver))
        return plugins.without_devices()["CUDA"]

    old, new = driver(12080), driver(13000)
    monkeypatch.setattr(plugins, "devices", lambda: [Device("CPU", "a CPU", "cpu", 1, 1)])
    plugin = libraries / "libggml-cuda.so"
    plugin.write_text("not a library")
    assert re.fullmatch(r"its driver cannot be loaded \(.*\); install the GPU's driver", why(folder / "nowhere"))
    assert why(old) == "its driver is for CUDA 12.8, and its plugin needs 13.0; install a later driver"
    assert re.fullmatch(r"its plugin cannot be loaded \(.*\); run pip install 'duo-llama\[cuda\]'", why(new))
    plugin.unlink()
    plugin.symlink_to(_core.__file__)
    assert why(new) == NO_GPU
    monkeypatch.setattr(plugins, "devices", lambda: [Device("CUDA0", "a GPU", "gpu", 1, 1)])
    assert plugins.without_devices() == {}


@pytest.mark.skipif(not TOOLS.is_dir(), reason="no sources")
def test_the_plugin_for_cuda_is_made_for_the_driver_that_duo_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    made = runpy.run_path(str(TOOLS / "wheel_cuda.py"))
    assert made["RELEASE"] == ".".join(map(str, plugins.CUDA))
    assert made["DRIVER"] == plugins.CUDA_DRIVER
