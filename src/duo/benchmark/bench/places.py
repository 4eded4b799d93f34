"""Places for models, and the placements of a pair that are compared: on one device, or on two."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from duo.benchmark.bench.arms import PLAIN, Arm, Length
from duo.errors import BadValueError
from duo.placement.cpus import core_cpus, cpu_mask
from duo.placement.devices import Device, default_devices, devices

AUTO = "auto"


@dataclass(frozen=True)
class Place:
    """Where a model may be: a device, or some of the CPUs."""

    name: str  # "CUDA0", "CPU", "CPU 0-3"
    device: str  # as for -dev: "CUDA0", or "none" for the CPU
    cpus: tuple[int, ...] = ()  # () on the CPU: all that duo would use

    def options(self, suffix: str) -> dict[str, Any]:
        """Keywords of `Duo` that put a model here. suffix: "" for the target, "_draft" for the draft."""
        options: dict[str, Any] = {f"device{suffix}": self.device}
        if self.cpus:
            options |= {f"cpu_mask{suffix}": cpu_mask(self.cpus), f"n_threads{suffix}": len(self.cpus)}
        return options


@dataclass(frozen=True)
class BenchPlacement:
    """A pair, or a target alone, at its places; and what is measured there."""

    name: str
    options: dict[str, Any]
    arms: tuple[Arm, ...]
    has_draft: bool = True


def parse_places(text: str, devices_here: Sequence[Device] | None = None) -> tuple[Place, Place]:
    """ "CUDA0,CPU", "0-3,4-7", or "auto": two places, the target's first.

    auto: the first two GPUs; a GPU and the CPU; without a GPU the two halves of the CPUs. devices_here: those of this
    machine, for tests. Raises BadValueError: an unknown device, not two places, or only one CPU.
    """
    devices_here = devices() if devices_here is None else devices_here
    accelerators = [d for d in devices_here if d.type in ("gpu", "igpu", "rpc")]
    if text == AUTO:
        gpus = default_devices(devices_here)
        if gpus:
            return Place(gpus[0], gpus[0]), Place(gpus[1], gpus[1]) if len(gpus) > 1 else Place("CPU", "none")
        cpus = core_cpus()
        if len(cpus) < 2:
            raise BadValueError("--placements needs two devices, but there is one CPU only; give two, as CUDA0,CPU")
        half = len(cpus) // 2
        return _on_cpus(cpus[:half]), _on_cpus(cpus[half : 2 * half])
    places = [_place(word.strip(), accelerators) for word in text.split(",")]
    if len(places) != 2 or places[0] == places[1] or set(places[0].cpus) & set(places[1].cpus):
        raise BadValueError(f"--placements has {text!r}; give auto or two different places, as CUDA0,CPU or 0-3,4-7")
    return places[0], places[1]


def _place(word: str, accelerators: Sequence[Device]) -> Place:
    if word.upper() == "CPU":
        return Place("CPU", "none")
    if m := re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", word):
        low, high = int(m[1]), int(m[2] or m[1])
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(high + 1)
        if low > high or not set(range(low, high + 1)) <= set(allowed):
            raise BadValueError(
                f"--placements has the CPUs {word}, which are not available to this process; choose others"
            )
        return _on_cpus(range(low, high + 1))
    for d in accelerators:
        if d.name == word:
            return Place(d.name, d.name)
    names = ", ".join(["CPU", *(d.name for d in accelerators)])
    raise BadValueError(f"--placements has the unknown place {word!r}; choose from {names}, or give CPUs, as 0-3")


def _on_cpus(cpus: Iterable[int]) -> Place:
    chosen = tuple(cpus)
    low, high = chosen[0], chosen[-1]
    in_a_row = len(chosen) > 1 and high - low + 1 == len(chosen)
    numbers = f"{low}-{high}" if in_a_row else ",".join(map(str, chosen))
    return Place(f"CPU {numbers}", "none", chosen)


def placements_of(
    a: Place, b: Place, sync_lengths: Sequence[Length], lengths: Sequence[Length]
) -> list[BenchPlacement]:
    """The placements to measure. The first is the target alone at A, with which the others are compared.

    Then the target alone at B, and on both if both are CPUs; both models at A, and the target at A with the draft at B.
    Where A and B are of different kinds, also the target at B with the draft at A.
    """
    drafted = (
        *(Arm(f"sync {k}", "sync", k) for k in sync_lengths),
        *(Arm(f"async {k}", "async", k) for k in lengths),
    )

    def pair(target: Place, draft: Place) -> BenchPlacement:
        return BenchPlacement(
            f"target {target.name}, draft {draft.name}",
            {**target.options(""), **draft.options("_draft")},
            drafted,
        )

    def alone(place: Place) -> BenchPlacement:
        return BenchPlacement(f"target {place.name}", place.options(""), (PLAIN,), has_draft=False)

    placements = [alone(a), alone(b)]
    if a.cpus and b.cpus:
        both = _on_cpus(sorted({*a.cpus, *b.cpus}))
        placements += [alone(both), pair(both, both)]
    placements += [pair(a, a), pair(a, b)]
    if a.device != b.device:
        placements.append(pair(b, a))
    return placements
