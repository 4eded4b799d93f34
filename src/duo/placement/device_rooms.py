"""The devices that can hold layers, and the memory that they have for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duo.errors import BadValueError
from duo.placement.devices import Device, default_devices
from duo.placement.fit import Room

# What ggml-cuda's libraries need for themselves: benchmarks/gpu/README.md.
DRIVER = 256 << 20  # bytes, for handles, kernels and scratch
DRIVEN = ("CUDA", "ROCm", "MUSA")  # devices of ggml-cuda, by the beginning of their names


def rooms_of(
    devices: Sequence[Device], margins: Sequence[int] = (), beside: Mapping[str, int] | None = None
) -> dict[str, Room]:
    """Devices that can hold layers, by name. margins: MiB that stay free on each of them, or on all; empty: auto.
    beside: bytes of other files there, by device."""
    host = next((d for d in devices if d.type == "cpu"), None)
    rooms: dict[str, Room] = {}
    for d in devices:
        if d.type in ("cpu", "accel"):
            continue
        # Devices that share the machine's memory may report none. CUDA's do that if they are too full to be asked.
        borrows = not d.total and host is not None and not d.name.startswith(DRIVEN)
        free, total = (host.free, host.total) if borrows and host is not None else (d.free, d.total)
        margin = None if not margins else margins[min(len(rooms), len(margins) - 1)] << 20
        driver = DRIVER if d.name.startswith(DRIVEN) else 0
        rooms[d.name] = Room(d.name, free, total, driver, margin, (beside or {}).get(d.name, 0))
    return rooms


def devices_for(names: Sequence[str], devices: Sequence[Device]) -> tuple[str, ...]:
    """The devices that -dev means to the engine: without names default_devices(); cuda0 is CUDA0. Raises
    BadValueError."""
    if not names:
        return default_devices(devices)
    if list(names) == ["none"]:
        return ()
    rooms = rooms_of(devices)
    name_of = {name.lower(): name for name in rooms}
    for name in names:
        if name.lower() not in name_of:
            choices = (
                ", ".join(["none", *rooms]) if rooms else "none (this build of llama-cpp-python has no other devices)"
            )
            raise BadValueError(f"unknown device {name}; choose from {choices}; duo --list-devices shows them")
    return tuple(name_of[name.lower()] for name in names)
