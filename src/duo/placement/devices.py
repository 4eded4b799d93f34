"""The devices of this machine."""

from __future__ import annotations

from typing import NamedTuple

from duo import _core


class Device(NamedTuple):
    name: str
    description: str
    type: str  # "gpu", "igpu", "cpu", "accel", "rpc"
    free: int  # bytes
    total: int


def devices() -> list[Device]:
    """Every device that ggml can compute on, including the CPU."""
    return [Device(*d) for d in _core.devices()]
