"""Chooses the type to which a draft's weights are requantised while they are packed for duo's kernels.

A draft's bits never change the text, only how often the draft is right. So its weights may be fewer bits than the file
has, where that makes its steps faster.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from duo import _core
from duo.models.head import Head
from duo.models.header import Header, read_header
from duo.models.paths import model_bytes
from duo.options.model import ModelOptions
from duo.placement import kernels
from duo.placement.prior import SMALL

N_SHORTLIST, N_LARGE = 32768, 65536  # tokens: of the shortlist; of a vocabulary that gets one
GAIN = 0.9  # a type that has kernels is not requantised unless that saves a tenth of its time
NEAR = 0.97  # the more accurate of two types is taken if it reaches this share of the other's speed
# What to requantise, and bits of a weight. Others have fewer bits than 4.5, or need an importance matrix.
WIDE = {
    "f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q6_K": 6.5625, "q5_K": 5.5, "q5_0": 5.5, "q5_1": 6.0,
    "q4_1": 5.0, "iq4_xs": 4.25, "mxfp4": 4.25,
}  # fmt: skip
BITS = {"iq4_nl": 4.5, "q4_0": 4.5}  # what they may become; the more accurate one first

Packing = tuple[str, list[str]]  # what weights become, and the types that do: _core.ModelOptions.packing
NONE: Packing = ("", [])


def cheap_draft(o: ModelOptions, teams: Sequence[int]) -> tuple[Packing, int]:
    """How to requantise a model whose layers are all on the CPU, and the size of its shortlist: ids below it are listed
    (csrc/llama/shortlist.h); 0: no shortlist. teams: numbers of threads that compute its steps."""
    h = _draft_header(o)
    return (NONE, 0) if h is None else (_packing(o, teams), _shortlist(o, h))


def _draft_header(o: ModelOptions) -> Header | None:
    """The header of a draft; None: the model is no draft, or belongs to the target (MTP layers, a head)."""
    if o.role != "draft" or o.mtp or not os.path.isfile(o.path):
        return None
    h = read_header(o.path)
    return h if Head.of(h) is None else None


def _may_pack(o: ModelOptions) -> bool:
    """Whether the user's options let a draft's weights be requantised."""
    return o.draft_pack != "off" and o.cpu_kernels != "stock" and bool(kernels.available())


def saved_bytes(o: ModelOptions) -> int:
    """How much less memory the weights take than in the file, if all its layers are on the CPU. Races nothing: it
    supposes that all wide types are requantised."""
    if not _may_pack(o) or _draft_header(o) is None:
        return 0
    path = os.fsencode(o.path)
    types = [t for t in _core.cpu_types(path, 0) if t in WIDE]
    if o.draft_pack == "auto":
        if model_bytes(o.path) < SMALL or o.override_tensors:
            return 0
        types = [t for t in types if min(BITS.values()) < GAIN * WIDE[t]]
    before, after = (_core.cpu_weight_bytes(path, 0, p) for p in (NONE, (min(BITS), types)))
    return sum(before.values()) - sum(after.values())


def _shortlist(o: ModelOptions, h: Header) -> int:
    if o.draft_vocab == "all":
        return 0
    if o.draft_vocab == "auto":
        return N_SHORTLIST if h.n_vocab > N_LARGE else 0
    return o.draft_vocab


def _step_us(
    weight_type: str, bits: float, n_threads: int, kinds: Sequence[kernels.Kind], *, race: bool
) -> float | None:
    """Microseconds that a step takes for so many weights of this type that 64 MB hold of 8 bits, by the faster of these
    kernels. None: unknown."""
    speed = kernels.speed_of(weight_type, n_threads) if race else kernels.cached_speed(weight_type, n_threads)
    if speed is None:
        return None
    return bits / 8 * min(speed.cost(kind, speed, drafted=True) for kind in kinds)


def _packing(o: ModelOptions, teams: Sequence[int]) -> Packing:
    """Races kernels where `kernels.chosen_types` may; otherwise earlier races decide, or the bits of a type."""
    if not _may_pack(o):
        return NONE
    types = [t for t in _core.cpu_types(os.fsencode(o.path), 0) if t in WIDE]
    if o.draft_pack != "auto":
        return (o.draft_pack, types) if types else NONE
    if not types or model_bytes(o.path) < SMALL:
        return NONE
    n_threads, race = max(teams), not o.strict and o.cpu_kernels != "duo"
    # Packed weights have duo's kernels, whatever stock ones would take.
    costs = {t: us for t, bits in BITS.items() if (us := _step_us(t, bits, n_threads, ["duo"], race=race)) is not None}
    if not costs and race:
        return NONE
    least = min(costs.values(), default=0.0)
    stored = next((t for t, us in costs.items() if NEAR * us <= least), next(iter(BITS)))
    slow = [t for t in types if _is_slower(t, stored, costs.get(stored), n_threads, race=race)]
    return (stored, slow) if slow else NONE


def _is_slower(weight_type: str, stored: str, stored_us: float | None, n_threads: int, *, race: bool) -> bool:
    """Whether weights of this type take longer than those that are stored in their place."""
    if weight_type not in _core.kernel_types():
        return True
    us = _step_us(weight_type, WIDE[weight_type], n_threads, kernels.KINDS, race=race)
    if us is None or stored_us is None:
        return not race and BITS[stored] < GAIN * WIDE[weight_type]
    return stored_us < GAIN * us
