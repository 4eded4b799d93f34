"""Where the models of a known pair can lie beside a GPU of a given size, by the figures in the list of pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from duo.errors import BadValueError
from duo.models.pairs import Entry, Pair
from duo.options.speculation import NGRAMS
from duo.placement.fit import MARGIN

Way = Literal["whole", "experts in RAM", "partly"]
WAYS: tuple[Way, ...] = ("whole", "experts in RAM", "partly")
LEAST = 0.1  # of the target on the device; below that it is a target of the CPU
_UNITS = {"M": 1e-3, "MB": 1e-3, "MIB": 2**20 / 1e9, "G": 1.0, "GB": 1.0, "GIB": 2**30 / 1e9, "T": 1e3, "TB": 1e3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


class Fit(NamedTuple):
    """device_gb: what lies on the GPU. host_gb: what lies in RAM. share: of the target on the GPU. Of a mixture, -ngl
    auto keeps only those experts in RAM that do not fit (duo.placement.mixture)."""

    entry: Entry
    way: Way
    device_gb: float
    host_gb: float
    share: float

    @property
    def options(self) -> str:
        """That place the models so. N-grams are named, because duo does not use them on a GPU unasked."""
        target = "-ngl all" if self.way == "whole" else "-ngl auto"
        draft = "" if self.entry.pair.draft is None else " -ngld all"
        return target + draft + (f" --spec-type {NGRAMS}" if self.entry.pair.spec_type == NGRAMS else "")


def gigabytes_of(text: str, flag: str) -> float:
    """GB that a size such as 12G, 12GiB or 8192M means; a number alone is GB. Raises BadValueError."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get((match[2] or "G").upper()) if match else None
    if match is None or unit is None or not 0 < float(match[1]) < 1e9:
        raise BadValueError(f"{flag} is {text!r}, which is not an amount of memory; write it as 12G or 8192M")
    return float(match[1]) * unit


def fits(entries: Iterable[Entry], device_gb: float, host_gb: float | None = None) -> list[Fit]:
    """The pairs for a GPU with so much memory: those that lie on it whole, then mixtures with experts in RAM, then
    those with a part of the target on it; large ones first. host_gb: RAM that there is; None: any."""
    choices = [f for e in entries if (f := fit(e, device_gb)) is not None and (host_gb is None or f.host_gb <= host_gb)]
    return sorted(choices, key=lambda f: (WAYS.index(f.way), -(f.share if f.way == "partly" else _total(f.entry.pair))))


def fit(e: Entry, device_gb: float) -> Fit | None:
    """How the pair fits; None: it does not, or the list does not say how large it is. As much stays free as with
    -ngl auto."""
    p, room = e.pair, device_gb - min(MARGIN / 1e9, device_gb / 16)
    size, dense = p.target.memory_gb, p.target.dense_gb
    if size is None or (p.draft is not None and p.draft.memory_gb is None):
        return None
    total = size + p.draft_gb
    if total <= room:
        return Fit(e, "whole", total, 0.0, 1.0)
    share = (room - p.draft_gb) / size
    if dense is not None and dense + p.draft_gb <= room:
        return Fit(e, "experts in RAM", room, total - room, share)
    return Fit(e, "partly", room, total - room, share) if share >= LEAST else None


def _total(p: Pair) -> float:
    return (p.target.memory_gb or 0.0) + p.draft_gb
