"""Where projectors are: the device that encodes pictures, and the memory that the file takes there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

from duo.errors import BadValueError
from duo.models.projector import local_projector
from duo.options.model import ModelOptions
from duo.options.named import device_names
from duo.placement.device_rooms import devices_for
from duo.placement.devices import Device

CPU = "none"


def projector_device(m: ModelOptions, devices: Sequence[Device]) -> str:
    """As llama.cpp: the one of --mmproj-device, or else the model's first one. none: the CPU; empty: the first GPU.
    Raises BadValueError."""
    named = device_names(m.mmproj_device)
    if len(named) > 1:
        raise BadValueError(f"mmproj_device (-mmdev) names {len(named)} devices, but one encodes pictures; give one")
    names = named or m.devices
    if not names:
        return ""
    found = devices_for(names, devices)
    return found[0] if found else CPU


def projector_bytes(models: Iterable[ModelOptions], devices: Sequence[Device]) -> Counter[str]:
    """Bytes of the models' projectors by the device, CPU among them. Raises BadValueError."""
    by_device = Counter[str]()
    for m in models:
        file = local_projector(m.path, m.mmproj)
        if file is not None:
            by_device[_place(m, devices)] += os.path.getsize(file)
    return by_device


def _place(m: ModelOptions, devices: Sequence[Device]) -> str:
    if not m.mmproj_offload:
        return CPU
    # clip.cpp takes the first GPU, and an integrated one if there is no other.
    gpus = (d.name for kind in ("gpu", "igpu") for d in devices if d.type == kind)
    return projector_device(m, devices) or next(gpus, CPU)
