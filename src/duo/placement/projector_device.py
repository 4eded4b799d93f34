"""The device that encodes pictures."""

from __future__ import annotations

from duo.errors import BadValueError
from duo.options.engine import EngineOptions
from duo.options.model import Role
from duo.options.named import device_names
from duo.placement.devices import devices
from duo.placement.resolve_auto import devices_for


def projector_device(o: EngineOptions, role: Role) -> str:
    """As llama.cpp: the one of --mmproj-device, or else the model's first one. none: the CPU; empty: the first GPU.
    Raises BadValueError."""
    named = device_names(o["mmproj_device"])
    if len(named) > 1:
        raise BadValueError(f"mmproj_device (-mmdev) names {len(named)} devices, but one encodes pictures; give one")
    names = named or device_names(o["device" if role == "target" else "device_draft"])
    if not names:
        return ""
    found = devices_for(names, devices())
    return found[0] if found else "none"
