"""-ngl auto of a mixture of experts: experts stay on the CPU first, because a token reads few of them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from duo.models.header import Header
from duo.options.experts import EXPERTS, overrides
from duo.options.model import ModelOptions
from duo.placement.fit import PairPlacement


def n_layers_to_experts(h: Header) -> int:
    """Layers up to the last one that has experts, without MTP layers; 0: there are none."""
    layers = [t.layer for t in h.tensors if t.layer is not None and re.search(EXPERTS, t.name)]
    return max((i for i in layers if not h.n_mtp or i < h.n_trunk), default=-1) + 1


def without_experts(target: ModelOptions, h: Header, place: Callable[[ModelOptions], PairPlacement]) -> ModelOptions:
    """The target, whose header is h, with experts on the CPU if it does not fit otherwise.

    They are those of so few layers that all the rest is on the devices, the first layers as with -ncmoe; or of all
    layers, if that is still too much. llama.cpp has the same aim (common/fit.cpp). Several devices have layers in the
    order of their numbers, so the first layers would make room on one of them only: there whole layers are placed.
    place: places both models, with such a target. Raises what it raises.
    """
    n_most = n_layers_to_experts(h)
    if not n_most:
        return target

    def with_experts_on_cpu(n: int) -> ModelOptions:
        return replace(target, override_tensors=tuple(overrides(False, n, 0)), n_cpu_moe=n)

    def n_missing(n: int) -> int:
        """Layers that are not on the device, with the experts of n layers on the CPU."""
        p = place(with_experts_on_cpu(n)).target
        return p.n_all - p.n_gpu_layers

    layers_only = place(target).target
    n_outside = layers_only.n_all - layers_only.n_gpu_layers
    if n_outside == 0 or len(layers_only.devices) != 1:
        return target
    if (n_least := n_missing(n_most)) > 0:
        return with_experts_on_cpu(n_most) if n_least < n_outside else target
    return with_experts_on_cpu(bisect_left(range(1, n_most), 0, key=lambda n: -n_missing(n)) + 1)
