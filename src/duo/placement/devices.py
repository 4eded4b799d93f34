"""The devices of this machine, and those that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duo import _core
from duo.errors import BadValue


class Device(NamedTuple):
    name: str
    description: str
    type: str  # "gpu", "igpu", "cpu", "accel", "rpc"
    free: int  # bytes
    total: int


def devices() -> list[Device]:
    """Every device that ggml can compute on, including the CPU."""
    return [Device(*d) for d in _core.devices()]


def device_names(value: str | Sequence[str] | None) -> list[str]:
    """The names in "CUDA0,CUDA1" or in a list; [] means the default. Raises BadValue."""
    names = value.split(",") if isinstance(value, str) else list(value or [])
    for n in names:
        if not n.isprintable():
            raise BadValue(f"{n!r} is not the name of a device; see duo --list-devices")
    return [n.strip() for n in names if n.strip()]


def tensor_overrides(value: str | Sequence[str] | None, *, draft: bool) -> list[tuple[str, str]]:
    """(pattern, memory) for each part of "ffn_up=CPU,attn=CUDA0" or of a list. Raises BadValue."""
    if value is None:
        return []
    found = []
    for one in ",".join([value] if isinstance(value, str) else value).split(","):
        pattern, _, memory = one.partition("=")
        if not pattern or not memory or not one.isprintable():
            raise BadValue(f"{one!r} ({'-otd' if draft else '-ot'}) is not PATTERN=MEMORY; write it as ffn_up=CPU")
        found.append((pattern, memory))
    return found
