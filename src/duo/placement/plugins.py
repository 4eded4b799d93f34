"""Libraries beside a wheel's libllama for other devices than the CPU. ggml loads them where their drivers are, and
passes over them in silence elsewhere."""

from __future__ import annotations

import ctypes
from pathlib import Path

from duo._libs import library_dir
from duo.build_advice import is_bundled
from duo.placement.devices import devices

KINDS = {"libggml-vulkan.so": "Vulkan"}  # what the names of their devices begin with


def _why_none(library: Path) -> str:
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
