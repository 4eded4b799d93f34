"""The devices of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duo import _core


class Device(NamedTuple):
    name: str
    description: str
    type: str  # "gpu", "igpu", "cpu", "accel", "rpc"
    free: int  # bytes
    total: int
    id: str = ""  # of the hardware, as a PCI address; empty: unknown


def devices() -> list[Device]:
    """Every device that ggml can compute on, including the CPU."""
    return [Device(*d) for d in _core.devices()]


def default_devices(devices: Sequence[Device]) -> tuple[str, ...]:
    """Names of the devices that a model uses if the user names none: the GPUs, or else the integrated GPUs, each once
    if several backends list it (csrc/llama/device.cpp, as llama.cpp does)."""
    for kind in ("gpu", "igpu"):
        of_kind = [d for d in devices if d.type == kind]
        if of_kind:
            return tuple(d.name for i, d in enumerate(of_kind) if not d.id or d.id not in {e.id for e in of_kind[:i]})
    return ()


def is_software(devices: Sequence[Device], names: Sequence[str]) -> bool:
    """Whether one of these is Mesa's software device (llvmpipe).

    ggml-vulkan's flash attention crashes there (Mesa 22.3) after passes of different widths, also in llama_cpp.Llama.
    """
    return any(d.name in names and d.description.startswith("llvmpipe") for d in devices)


def default_flash_attn(devices: Sequence[Device], names: Sequence[str]) -> str:
    """What -fa auto means for layers on these devices: auto is libllama's own choice."""
    return "off" if is_software(devices, names) else "auto"
