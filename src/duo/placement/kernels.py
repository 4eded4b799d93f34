"""Which CPU kernels multiply which weights: duo's where they are faster here, measured once and remembered."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from platformdirs import user_cache_path

from duo import _core
from duo.errors import DuoError
from duo.options.option import CpuKernels
from duo.placement import guard
from duo.support.json_cache import recall, remember

RACE_US = 25_000  # for one type, width and team of threads
N_RACES = 512  # that are remembered: of 8 types, a few teams and some builds of llama.cpp
PROMPT = 64
WIDTHS = (1, 2, 4, PROMPT)  # plain decoding, short and usual verifications, prompts

# What kernels are chosen for: passes of a text of 512 prompt tokens and 256 written ones, by width.
PASSES_PLAIN = {1: 256, PROMPT: 8}
PASSES_DRAFTED = {1: 20, 4: 100, PROMPT: 8}

RACED: dict[str, Speed] = {}  # by this process, under the keys of the cache, which cannot always be written

Kind = Literal["stock", "duo"]
KINDS: tuple[Kind, Kind] = ("duo", "stock")


class Speed(NamedTuple):
    """Microseconds of one product of a matrix of 64 MB, by width."""

    stock: dict[int, float]
    duo: dict[int, float]
    ahead: int  # bytes that duo's kernels read ahead for them

    def duo_is_faster(self, *, drafted: bool) -> bool:
        """For a whole text, prompt and all. drafted: guesses are verified."""
        return self.cost("duo", self, drafted=drafted) < self.cost("stock", self, drafted=drafted)

    def cost(self, kind: Kind, of_prompt: Speed, *, drafted: bool) -> float:
        """of_prompt: of the team that reads the prompt."""
        times, prompt = (speed.duo if kind == "duo" else speed.stock for speed in (self, of_prompt))
        passes = PASSES_DRAFTED if drafted else PASSES_PLAIN
        return sum(n * (prompt if w == PROMPT else times)[w] for w, n in passes.items())


def available() -> str:
    """The instruction set of duo's kernels, as "avx512" or "neon_dot"; empty: this machine has stock kernels only."""
    return _core.kernels()[0]


@cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system tells it; ARM's Linux has numbers alone: "ARM 0x41 0xd0c"."""
    found: dict[str, list[str]] = {}
    with suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), []).append(value.strip())
    if names := found.get("model name"):
        return names[0]
    # The maker's number and the design's, of each kind of core.
    if cores := set(zip(found.get("CPU implementer", []), found.get("CPU part", []), strict=False)):
        return "ARM " + ", ".join(" ".join(core) for core in sorted(cores))
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.SubprocessError):
            brand = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(brand, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    return platform.processor() or platform.machine()


def cache_file() -> Path:
    return user_cache_path("duo") / "kernels.json"


def _key(weight_type: str, n_threads: int) -> str:
    kernels = f"{available()} {_core.KERNELS_VERSION}"
    return " | ".join([processor(), f"{n_threads} threads", guard.stock_name(), kernels, weight_type])


def measure(
    weight_type: str, teams: Sequence[int], widths: Sequence[int] = WIDTHS, race_us: int = RACE_US
) -> list[Speed]:
    """Duo's kernels against stock ones on a matrix of this type, for each team (a number of threads).

    Raises DuoError (no kernels, no memory).
    """
    found = []
    for ahead, times in _core.race(weight_type, widths, teams, race_us):
        # Disturbances only lengthen times, and fewer inputs take no longer than more.
        stock, duo = (
            {w: min(pair[side] for v, pair in zip(widths, times, strict=True) if v >= w) for w in widths}
            for side in (0, 1)
        )
        found.append(Speed(stock, duo, ahead))
    return found


def _read(found: object) -> Speed | None:
    """What was remembered; None: nothing, or it is damaged."""
    if not isinstance(found, dict):
        return None
    try:
        stock, duo = ({int(w): float(us) for w, us in found[kind].items()} for kind in ("stock", "duo"))
        speed = Speed(stock, duo, int(found["ahead"]))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    whole = all(times.get(w, 0.0) > 0.0 for times in (stock, duo) for w in WIDTHS)
    return speed if whole and 0 <= speed.ahead < 2**31 else None


def remembered_speed(weight_type: str, n_threads: int) -> Speed | None:
    """What an earlier race has measured; None: nothing. Races nothing."""
    key = _key(weight_type, n_threads)
    return RACED.get(key) or _read(recall(cache_file()).get(key))


def speeds_of(weight_type: str, teams: tuple[int, ...]) -> list[Speed] | None:
    """For each number of threads, measured in some tenths of a second the first time, then read from `cache_file()`.
    What was measured and not what followed from it is kept: another question needs no other race.

    None: there is no memory to measure.
    """
    known = {n: remembered_speed(weight_type, n) for n in teams}
    missing = [n for n, speed in known.items() if speed is None]
    if missing:
        try:
            raced = measure(weight_type, missing)
        except DuoError:  # no memory to measure: none to pack weights
            return None
        for n, speed in zip(missing, raced, strict=True):
            known[n] = RACED[_key(weight_type, n)] = speed
            if guard.is_build_known():
                remember(cache_file(), _key(weight_type, n), speed._asdict(), N_RACES)
    return [speed for speed in known.values() if speed is not None]


def speed_of(weight_type: str, n_threads: int) -> Speed | None:
    """The same of one team."""
    speeds = speeds_of(weight_type, (n_threads,))
    return speeds[0] if speeds else None


def duo_is_faster(weight_type: str, teams: Sequence[int], of_prompt: int, *, drafted: bool) -> bool:
    """teams: numbers of threads that passes are made with, one after the other. of_prompt: that prompts are read with.
    drafted: see `Speed.duo_is_faster`."""
    speeds = speeds_of(weight_type, tuple(dict.fromkeys([*teams, of_prompt])))
    if not speeds:
        return False
    by_team = dict(zip(dict.fromkeys([*teams, of_prompt]), speeds, strict=True))
    duo, stock = (sum(by_team[n].cost(kind, by_team[of_prompt], drafted=drafted) for n in teams) for kind in KINDS)
    return duo < stock


def chosen_types(
    choice: CpuKernels, path: str, n_gpu_layers: int, teams: Sequence[int], of_prompt: int, *, drafted: bool = True
) -> list[str]:
    """The weight types of this file's CPU layers that go to duo's kernels. n_gpu_layers < 0: all layers. The others:
    see `duo_is_faster`.

    Raises DuoError if duo's kernels are asked for and cannot be had.
    """
    name, why_not = _core.kernels()
    if choice == "duo" and not name:
        raise DuoError(f"duo's CPU kernels cannot be used: {why_not}; leave out --cpu-kernels duo")
    if choice == "stock" or not name or not os.path.isfile(path):
        return []
    types = [t for t in _core.cpu_types(os.fsencode(path), n_gpu_layers) if t in _core.kernel_types()]
    return types if choice == "duo" else [t for t in types if duo_is_faster(t, teams, of_prompt, drafted=drafted)]


def read_ahead(weight_types: Sequence[str], n_threads: int) -> None:
    """From now on duo's kernels read weights of these types as far ahead as is best for such a team, where a race has
    told. All models of this process share it."""
    for weight_type in weight_types:
        if (speed := remembered_speed(weight_type, n_threads)) is not None:
            _core.read_ahead_of(weight_type, speed.ahead)
