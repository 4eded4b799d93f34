"""Which CPU kernels multiply which weights: duo's where they are faster here, measured once and remembered."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from platformdirs import user_cache_path

from duo import _core, guard
from duo.errors import DuoError
from duo.option import CpuKernels
from duo.remembered import recall, remember

RACE_US = 40_000  # for one type and width
WIDTHS = (1, 2, 4, 64)  # plain decoding, short and usual verifications, prompts

# What kernels are chosen for: passes of a text of 512 prompt tokens and 256 written ones, by width.
PASSES_PLAIN = {1: 256, 64: 8}
PASSES_DRAFTED = {1: 20, 4: 100, 64: 8}

Kind = Literal["stock", "duo"]


class Speed(NamedTuple):
    """Microseconds of one product of a matrix of 64 MB, by width."""

    stock: dict[int, float]
    duo: dict[int, float]

    def duo_is_faster(self, *, drafted: bool) -> bool:
        """For a whole text, prompt and all. drafted: guesses of a draft are verified."""
        return self.cost("duo", drafted=drafted) < self.cost("stock", drafted=drafted)

    def cost(self, kind: Kind, *, drafted: bool) -> float:
        times = self.duo if kind == "duo" else self.stock
        return sum(n * times[w] for w, n in (PASSES_DRAFTED if drafted else PASSES_PLAIN).items())


def available() -> str:
    """The instruction set of duo's kernels, as "avx512"; empty: this machine has stock kernels only."""
    return _core.kernels()[0]


def processor() -> str:
    """The processor's name, as the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cache_file() -> Path:
    return user_cache_path("duo") / "kernels.json"


def _key(weight_type: str, n_threads: int) -> str:
    kernels = f"{available()} {_core.KERNELS_VERSION}"
    return " | ".join([processor(), f"{n_threads} threads", guard.stock_name(), kernels, weight_type])


def measure(weight_type: str, widths: tuple[int, ...] = WIDTHS, n_threads: int = 1, race_us: int = RACE_US) -> Speed:
    """Duo's kernels against stock ones on a matrix of this type. Raises DuoError (no kernels, no memory)."""
    speed = Speed({}, {})
    for width in widths:
        speed.stock[width], speed.duo[width] = _core.race(weight_type, width, n_threads, race_us)
    return speed


def _read(found: object) -> Speed | None:
    """What was remembered; None: nothing, or it is damaged."""
    if not isinstance(found, dict):
        return None
    try:
        speed = Speed(*({int(w): float(us) for w, us in found[kind].items()} for kind in ("stock", "duo")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    whole = all(w in times and times[w] > 0.0 for times in speed for w in WIDTHS)
    return speed if whole else None


@cache
def speed_of(weight_type: str, n_threads: int) -> Speed | None:
    """Measured in half a second the first time, then read from `cache_file()`. None: there is no memory to measure."""
    key = _key(weight_type, n_threads)
    known = _read(recall(cache_file()).get(key))
    if known is None:
        try:
            known = measure(weight_type, n_threads=n_threads)
        except DuoError:  # no memory to measure: none to pack weights
            return None
        remember(cache_file(), key, {"stock": known.stock, "duo": known.duo})
    return known


def duo_is_faster(weight_type: str, teams: Sequence[int], *, drafted: bool) -> bool:
    """teams: numbers of threads that passes are made with, one after the other. drafted: see `Speed.duo_is_faster`."""
    speeds = [speed_of(weight_type, n) for n in teams]
    known = [s for s in speeds if s is not None]
    if len(known) < len(speeds):
        return False
    costs = {kind: sum(s.cost(kind, drafted=drafted) for s in known) for kind in ("stock", "duo")}
    return costs["duo"] < costs["stock"]


def chosen_types(
    choice: CpuKernels, path: str, n_gpu_layers: int, teams: Sequence[int], *, drafted: bool = True
) -> list[str]:
    """The weight types of this file's CPU layers that go to duo's kernels. n_gpu_layers < 0: all layers.

    Raises DuoError if duo's kernels are asked for and cannot be had.
    """
    name, why_not = _core.kernels()
    if choice == "duo" and not name:
        raise DuoError(f"duo's CPU kernels cannot be used: {why_not}; leave out --cpu-kernels duo")
    if choice == "stock" or not name or not os.path.isfile(path):
        return []
    types = [t for t in _core.cpu_types(os.fsencode(path), n_gpu_layers) if t in _core.kernel_types()]
    return types if choice == "duo" else [t for t in types if duo_is_faster(t, teams, drafted=drafted)]
