"""What the models of a pair share, and which options would separate them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duo import _core
from duo.placement.cpus import core_cpus, cpu_mask, usable_cores

if TYPE_CHECKING:
    from duo.model import Duo


@dataclass(frozen=True)
class Sharing:
    """devices: those that both models use, without the CPU."""

    devices: tuple[str, ...] = ()
    cpu: bool = False  # both compute on it
    own_cores: bool = False  # each model has its own CPUs
    lends: bool = False  # the target has more threads while the draft is idle
    options: str = ""  # options that give each model its own cores; empty: it has them, or there is only one core


def _on_cpu(m: _core.Model) -> bool:
    return m.n_cpu_products > 0 or not m.devices


def _cpus(cpus: Sequence[int], suffix: str) -> str:
    first, last = cpus[0], cpus[-1]
    if last - first + 1 == len(cpus):
        return f"-Cr{suffix} {first}-{last}"
    return f"-C{suffix} {cpu_mask(cpus)}"


def separate(cores: Sequence[int], n_target: int, n_draft: int) -> str:
    """Options that give the target the first of these cores and the draft the last, about as many as both have now."""
    if len(cores) < 2:
        return ""
    n_draft = min(n_draft, max(1, len(cores) // 2))
    n_target = min(n_target, len(cores) - n_draft)
    target_cores, draft_cores = cores[:n_target], cores[len(cores) - n_draft :]
    return f"-t {n_target} {_cpus(target_cores, '')} -td {n_draft} {_cpus(draft_cores, 'd')}"


def sharing_of(duo: Duo) -> Sharing:
    target, draft = duo.target, duo.draft
    if draft is None:
        return Sharing()
    devices = tuple(d for d in target.devices if d in draft.devices)
    cpus = [set(m.cpus) for m in (duo.placed.target, duo.placed.draft)]
    cpu = _on_cpu(target) and _on_cpu(draft)
    own_cores = cpu and all(cpus) and not cpus[0] & cpus[1]
    split = duo.placed.split
    cores = core_cpus()[: usable_cores()]
    teams = split if any(split) else (target.n_threads, draft.n_threads)
    options = separate(cores, *teams) if cpu and not own_cores else ""
    return Sharing(devices, cpu, own_cores, any(split), options)
