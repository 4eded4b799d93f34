"""Distributes the layers of two models over the devices. The draft comes first, because it profits most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from duo.errors import DoesNotFitError
from duo.placement.memory import Need, Places, most_layers, places
from duo.support.wording import gigabytes, plural

MARGIN = 1 << 30  # bytes that auto keeps free on a device for the unforeseen; a sixteenth on small devices


class Room(NamedTuple):
    """A device that can hold layers."""

    name: str
    free: int  # bytes
    total: int
    driver: int = 0  # bytes of the free ones that its libraries take when the first model computes there
    margin: int | None = None  # bytes that stay free; None: auto
    beside: int = 0  # bytes of other files that are loaded there: projectors

    @property
    def usable(self) -> int:
        margin = min(MARGIN, self.total // 16) if self.margin is None else self.margin
        return max(0, self.free - max(self.driver, margin) - self.beside - self.beside // 2)  # and what they compute


@dataclass(frozen=True)
class PlacementRequest:
    """What the user wants for one model."""

    what: str  # "target" or "draft"
    need: Need
    devices: tuple[str, ...]  # that it may use; empty: the CPU only
    n_gpu_layers: int | None  # None: auto
    flag: str = "-ngl"
    shares: tuple[float, ...] = ()  # -ts; empty: by free memory
    device_given: bool = False
    n_cpu_moe: int = 0  # auto keeps the experts of so many layers on the CPU


@dataclass(frozen=True)
class ModelPlacement:
    """The placement of one model."""

    what: str
    n_gpu_layers: int
    n_all: int
    devices: tuple[str, ...]
    shares: tuple[float, ...]  # of each device; empty: libllama's own split
    bytes: Places
    auto: bool
    crowded: bool = False  # the first device has no room to compute prompts with weights of the CPU, or for anything
    left_out: bool = False  # a device that has no room for anything takes no part
    n_cpu_moe: int = 0  # auto keeps the experts of so many layers on the CPU, which the need knows already

    def line(self) -> str:
        if not self.n_gpu_layers or not self.devices:
            return f"{self.what} on the CPU ({gigabytes(self.bytes.host)})"
        parts = [f"{d} ({gigabytes(b)})" for d, b in zip(self.devices, self.bytes.devices, strict=True) if b]
        if self.n_gpu_layers >= self.n_all and not self.n_cpu_moe:
            return f"{self.what} whole on {' + '.join(parts)}"
        rest = f"the rest on the CPU ({gigabytes(self.bytes.host)})"
        if self.n_cpu_moe:
            of = f"of its first {plural(self.n_cpu_moe, 'layer')}" if self.n_cpu_moe > 1 else "of its first layer"
            and_layers = "" if self.n_gpu_layers >= self.n_all else "the other layers and "
            rest = f"{and_layers}the experts {of} on the CPU ({gigabytes(self.bytes.host)})"
        return f"{self.what} {self.n_gpu_layers} of {self.n_all} layers on {' + '.join(parts)}, {rest}"


@dataclass(frozen=True)
class PairPlacement:
    """Where both models are."""

    target: ModelPlacement
    draft: ModelPlacement | None

    @property
    def models(self) -> list[ModelPlacement]:
        """The target first."""
        return [p for p in (self.target, self.draft) if p is not None]

    @property
    def auto_is_all(self) -> bool:
        """Whether auto, where it was asked for, means all layers."""
        return all(p.n_gpu_layers >= p.n_all and not p.n_cpu_moe for p in self.models if p.auto)

    def line(self) -> str:
        """One line for the user."""
        return "placement: " + "; ".join(p.line() for p in (self.draft, self.target) if p is not None)


def place_layers(target: PlacementRequest, draft: PlacementRequest | None, devices: Sequence[Room]) -> PairPlacement:
    """Places the layers of both models. Numbers that the user gave come first, then the draft, then the target.

    Raises DoesNotFitError, with the largest number of layers that fits.
    """
    free = {d.name: d for d in devices}
    requests = [w for w in (draft, target) if w is not None]
    placements: dict[str, ModelPlacement] = {}
    for w in sorted(requests, key=lambda w: w.n_gpu_layers is None):  # stable: the draft before the target
        placements[w.what] = p = _fixed(w, free) if w.n_gpu_layers is not None else _fitted(w, free)
        for name, used in zip(p.devices, p.bytes.devices, strict=True):
            free[name] = free[name]._replace(free=max(0, free[name].free - used))
    return PairPlacement(placements[target.what], None if draft is None else placements[draft.what])


def _places(w: PlacementRequest, n: int, shares: tuple[float, ...], rooms: Sequence[Room]) -> tuple[Places, bool]:
    """The bytes in each place, and whether the first device is full, or too crowded for prompts of the CPU's layers."""
    usage = places(w.need, n, shares)
    if not rooms or not w.need.matrix or usage.devices[0] <= rooms[0].usable:
        return usage, bool(rooms) and not rooms[0].usable
    return places(replace(w.need, matrix=(), kept_matrix=0), n, shares), True


def _fitted(w: PlacementRequest, free: dict[str, Room]) -> ModelPlacement:
    rooms = [free[name] for name in w.devices]
    if w.what == "draft" and not w.device_given and len(rooms) > 1:
        rooms = [max(rooms, key=lambda d: d.usable)]  # a small model is slower on two devices than on one
    n_devices = len(rooms)
    if not w.shares:
        rooms = [d for d in rooms if d.usable] or rooms[:1]
    usable = [d.usable for d in rooms]
    shares = w.shares[: len(rooms)] if w.shares else tuple(map(float, usable))
    n = most_layers(w.need, usable, shares) if rooms else 0
    names = tuple(d.name for d in rooms)
    usage, crowded = _places(w, n, shares, rooms)
    left_out = len(rooms) < n_devices
    return ModelPlacement(
        w.what,
        n,
        w.need.n_all,
        names,
        shares,
        usage,
        auto=True,
        crowded=crowded,
        left_out=left_out,
        n_cpu_moe=w.n_cpu_moe,
    )


def _fixed(w: PlacementRequest, free: dict[str, Room]) -> ModelPlacement:
    rooms = [free[name] for name in w.devices]
    shares = w.shares[: len(rooms)] if w.shares else tuple(float(d.free) for d in rooms)
    n = min(w.n_gpu_layers or 0, w.need.n_all)
    usage, crowded = _places(w, n, shares, rooms)
    placed = ModelPlacement(w.what, n, w.need.n_all, w.devices, (), usage, auto=False, crowded=crowded)
    for d, exact in zip(rooms, usage.fixed, strict=True):
        if exact and exact + d.driver + d.beside > d.free:
            most = _fitted(replace(w, device_given=True), free).n_gpu_layers
            raise DoesNotFitError(
                f"the {w.what}{' with the projector' if d.beside else ''} needs "
                f"{gigabytes(exact + d.driver + d.beside)} on {d.name}, but only {gigabytes(d.free)} are free; "
                f"give at most {w.flag} {most} (of {w.need.n_all} layers), or {w.flag} auto"
            )
    return placed
