"""Libraries beside a wheel's libllama for other devices than the CPU. ggml loads them where their drivers are, and
passes over them in silence elsewhere."""

from __future__ import annotations

import ctypes
from pathlib import Path

from duo._libs import library_dir
from duo.build_advice import DISTRIBUTION, is_bundled
from duo.placement.devices import devices

KINDS = {"libggml-cuda.so": "CUDA", "libggml-vulkan.so": "Vulkan"}  # what the names of their devices begin with
CUDA_DRIVER = "libcuda.so.1"
CUDA = (13, 0)  # whose PTX the plugin has (tools/wheel_cuda.py): a driver compiles that of no later release


def _cuda_of(driver: ctypes.CDLL) -> tuple[int, int]:
    """The release of CUDA that a driver is for."""
    number = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return CUDA
    return number.value // 1000, number.value % 1000 // 10


def _why_no_cuda(library: Path) -> str:
    try:
        driver = ctypes.CDLL(CUDA_DRIVER)
    except OSError as e:
        return f"its driver cannot be loaded ({e}); install the GPU's driver"
    if (release := _cuda_of(driver)) < CUDA:
        has, needs = (".".join(map(str, r)) for r in (release, CUDA))
        return f"its driver is for CUDA {has}, and its plugin needs {needs}; install a later driver"
    try:
        ctypes.CDLL(str(library))
    except OSError as e:
        return f"its plugin cannot be loaded ({e}); run pip install '{DISTRIBUTION}[cuda]'"
    return "no driver on this machine has a GPU"


def _why_none(library: Path) -> str:
    if KINDS[library.name] == "CUDA":
        return _why_no_cuda(library)
    try:
        ctypes.CDLL(str(library))
    except OSError as e:
        return f"its plugin cannot be loaded ({e}); install the GPU's driver"
    return "no driver on this machine has a GPU"


def without_devices() -> dict[str, str]:
    """The kinds of devices that this duo could use, and of which there is none: why."""
    if not is_bundled():
        return {}
    names = [d.name for d in devices()]
    plugins = {kind: library_dir() / file for file, kind in KINDS.items()}
    return {
        kind: _why_none(library)
        for kind, library in plugins.items()
        if library.exists() and not any(name.startswith(kind) for name in names)
    }


def lines() -> list[str]:
    """One sentence for each of them, for a report."""
    return [f"{kind}: no device, because {why}" for kind, why in without_devices().items()]
