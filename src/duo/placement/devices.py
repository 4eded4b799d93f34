"""Which devices there are, and which ones the user names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duo import _core
from duo.errors import DuoError


class Device(NamedTuple):
    name: str
    description: str
    type: str  # "gpu", "igpu", "cpu", "accel", "rpc"
    free: int  # bytes
    total: int


def devices() -> list[Device]:
    """Everything ggml can compute on, the CPU included."""
    return [Device(*d) for d in _core.devices()]


def device_names(value: str | Sequence[str] | None) -> list[str]:
    """ "CUDA0,CUDA1" or a list -> names; [] means the default."""
    names = value.split(",") if isinstance(value, str) else list(value or [])
    for n in names:
        if not n.isprintable():
            raise DuoError(f"{n!r} is no device name; see duo --list-devices")
    return [n.strip() for n in names if n.strip()]


def tensor_overrides(value: str | Sequence[str] | None, *, draft: bool) -> list[tuple[str, str]]:
    """ "ffn_up=CPU,attn=CUDA0" or a list of such -> (pattern, memory)."""
    if value is None:
        return []
    found = []
    for one in ",".join([value] if isinstance(value, str) else value).split(","):
        pattern, _, memory = one.partition("=")
        if not pattern or not memory or not one.isprintable():
            raise DuoError(f"{one!r} ({'-otd' if draft else '-ot'}) is not PATTERN=MEMORY; write it as ffn_up=CPU")
        found.append((pattern, memory))
    return found
