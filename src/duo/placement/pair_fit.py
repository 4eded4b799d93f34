"""Where the models of a known pair can lie with so much memory, by the figures in the list of pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from duo.errors import BadValueError
from duo.models.pairs import Entry, Pair
from duo.options.speculation import NGRAMS
from duo.placement.fit import MARGIN

Way = Literal["whole", "experts in RAM", "partly", "CPU"]
WAYS: tuple[Way, ...] = ("whole", "experts in RAM", "partly", "CPU")
SYSTEM = 2 << 30  # bytes of RAM that stay free for other programs if there is no GPU; an eighth of little RAM
LEAST = 0.1  # of the target on the device; below that it is a target of the CPU
# A card of "24 GB" and a module of "16 GB" have GiB, so all units are binary.
_UNITS = {f"{unit}{end}": 1 << bits for unit, bits in (("M", 20), ("G", 30), ("T", 40)) for end in ("", "B", "IB")}
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
        target = {"whole": "-ngl all", "CPU": "-ngl 0"}.get(self.way, "-ngl auto")
        draft = "" if self.entry.pair.draft is None else " -ngld 0" if self.way == "CPU" else " -ngld all"
        return target + draft + (f" --spec-type {NGRAMS}" if self.entry.pair.spec_type == NGRAMS else "")


def bytes_of(text: str, flag: str) -> int:
    """Bytes that a size such as 12G (GiB), 12GB or 8192M means; a number alone is GiB. Raises BadValueError."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get((match[2] or "G").upper()) if match else None
    if match is None or unit is None or not 0 < float(match[1]) < 1e9:
        raise BadValueError(f"{flag} is {text!r}, which is not an amount of memory; write it as 12G or 8192M")
    return round(float(match[1]) * unit)


def fits(entries: Iterable[Entry], device_gb: float, host_gb: float | None = None) -> list[Fit]:
    """The pairs for a GPU with so much memory: those that lie on it whole, then mixtures with experts in RAM, then
    those with a part of the target on it; large ones first. device_gb 0: for a machine without a GPU. host_gb: RAM that
    there is; None: any."""
    if host_gb is not None and not device_gb:
        host_gb -= min(SYSTEM / 1e9, host_gb / 8)
    choices = [f for e in entries if (f := fit(e, device_gb)) is not None and (host_gb is None or f.host_gb <= host_gb)]
    return sorted(choices, key=lambda f: (WAYS.index(f.way), -(f.share if f.way == "partly" else _total(f.entry.pair))))


def fit(e: Entry, device_gb: float) -> Fit | None:
    """How the pair fits; None: it does not, or the list does not say how large it is. As much stays free on a GPU as
    with -ngl auto."""
    p, room = e.pair, device_gb - min(MARGIN / 1e9, device_gb / 16)
    size, dense = p.target.memory_gb, p.target.dense_gb
    if size is None or (p.draft is not None and p.draft.memory_gb is None):
        return None
    total = size + p.draft_gb
    if not device_gb:
        return Fit(e, "CPU", 0.0, total, 0.0)
    if total <= room:
        return Fit(e, "whole", total, 0.0, 1.0)
    share = (room - p.draft_gb) / size
    if dense is not None and dense + p.draft_gb <= room:
        return Fit(e, "experts in RAM", room, total - room, share)
    return Fit(e, "partly", room, total - room, share) if share >= LEAST else None


def _total(p: Pair) -> float:
    return (p.target.memory_gb or 0.0) + p.draft_gb
