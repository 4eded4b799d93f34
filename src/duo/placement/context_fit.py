"""The context of --fit-ctx: the largest that the memory holds, as llama.cpp's --fit chooses it (common/fit.cpp)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from duo.models.header import Header
from duo.options.model import ModelOptions
from duo.placement.fit import PairPlacement

STEP = 256  # tokens


def with_least_context(target: ModelOptions, h: Header) -> ModelOptions:
    """The target, whose header is h, with the context that fit_ctx promises, or as it is if nothing is to be chosen. A
    file that does not say how long its texts may be leaves nothing to choose."""
    if target.fit_ctx is None or target.n_ctx is not None or h.n_ctx_train < STEP:
        return target
    return replace(target, n_ctx=min(max(target.fit_ctx, STEP), h.n_ctx_train))


def with_largest_context(
    target: ModelOptions,
    h: Header,
    place: Callable[[ModelOptions], PairPlacement],
    fits: Callable[[ModelOptions, ModelOptions], bool],
) -> ModelOptions:
    """The target, whose header is h, with a context from fit_ctx up to the model's own.

    A larger context takes no layer from a device. place: places both models, with such a target. fits: whether there is
    memory for the first, with as many layers on the devices as for the second. Raises what they raise.
    """
    least = with_least_context(target, h)
    n_least = least.n_ctx
    if n_least is None or least is target:
        return target
    if target.n_gpu_layers == "auto":
        p = place(least).target
        if p.devices and p.n_gpu_layers < p.n_all:
            return least
    larger = [*range(n_least + STEP - n_least % STEP, h.n_ctx_train, STEP), h.n_ctx_train]
    n_fitting = bisect_left(larger, True, key=lambda n: not fits(replace(target, n_ctx=n), least))
    return replace(target, n_ctx=larger[n_fitting - 1]) if n_fitting else least
