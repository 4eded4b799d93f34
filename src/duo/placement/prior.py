"""Estimates the times of passes before the first one, from the race of the CPU kernels and the models' sizes."""

from __future__ import annotations

import os

from duo import _core
from duo.models.head import Head
from duo.models.header import read_header
from duo.models.paths import model_bytes
from duo.placement import kernels

SMALL = 64_000_000  # bytes of weights; below this, products are only a part of a pass
BLOCK = 4  # rows whose time stands for a block's time: the nearest of the widths that are raced
REST = 1.1  # a pass takes this much longer than its products: attention, norms, overhead


def _times(m: _core.ModelOptions, race: bool) -> dict[int, float]:
    """Microseconds of a pass on the CPU, by width; empty if unknown."""
    if not kernels.available() or not os.path.isfile(os.fsdecode(m.path)):
        return {}
    total = dict.fromkeys(kernels.WIDTHS, 0.0)
    for weight_type, n_bytes in _core.cpu_weight_bytes(m.path, 0, m.packing).items():
        if weight_type not in _core.kernel_types():
            return {}
        speed = (kernels.speed_of if race else kernels.cached_speed)(weight_type, m.n_threads)
        if speed is None:
            return {}
        times = speed.duo if weight_type in (*m.cpu_types, m.packing[0]) else speed.stock
        for width in total:
            total[width] += REST * times[width] * n_bytes / _core.RACE_BYTES
    return total


def expect(o: _core.EngineOptions, *, target_on_cpu: bool, draft_on_cpu: bool, race: bool) -> None:
    """Fills in the estimates. The first text then begins with the lengths that should pay off and tries no others.
    race: whether to race kernels for this; otherwise only earlier races are used."""
    if not target_on_cpu or o.target.strict or model_bytes(os.fsdecode(o.target.path)) < SMALL:
        return
    o.expected_pass_us = [(w, us) for w, us in _times(o.target, race).items() if us > 0.0]
    if not o.expected_pass_us or not draft_on_cpu or not o.draft.path or o.draft.mtp:
        return
    if times := _times(o.draft, race):
        head = Head.of(read_header(os.fsdecode(o.draft.path)))
        o.expected_step_us = times[BLOCK if head is not None and head.n_block else 1]
