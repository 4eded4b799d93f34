"""Chooses the CPU kernels for each type of weights: duo's where they are faster, measured once on each machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from duo import _core
from duo.errors import BadValueError, DoesNotFitError
from duo.options.option import CpuKernels
from duo.placement import guard
from duo.support.cache_folder import cache_folder
from duo.support.json_cache import recall, remember
from duo.support.other_load import QUIET_CORES, Moment, other_cores

RACE_US = 25_000  # for one type, one width and one team of threads
N_DISTURBED = 4  # races beside other programs after which the best times are believed
N_RACES = 512  # kept on the disk: 25 types, a few teams and some builds of llama.cpp
PROMPT = 64
WIDTHS = (1, 2, 4, PROMPT)  # plain decoding, short and usual verification, prompts

# Kernels are chosen for a text of 512 prompt tokens and 256 generated ones: its passes by width.
PASSES_PLAIN = {1: 256, PROMPT: 8}
PASSES_DRAFTED = {1: 20, 4: 100, PROMPT: 8}

# Stock kernels must save a twentieth of a text's time. Otherwise the choice, and with it the bits, would change from
# race to race, and differ with and without a draft.
TIE = 0.95

RACED: dict[str, KernelSpeed] = {}  # results of this process by the cache's keys, because the cache may be read-only

Kind = Literal["stock", "duo"]
KINDS: tuple[Kind, Kind] = ("duo", "stock")


class KernelSpeed(NamedTuple):
    """Microseconds for one product with a matrix of 64 MB, by width."""

    stock: dict[int, float]
    duo: dict[int, float]
    ahead: int  # bytes that duo's kernels read ahead to reach these times

    def or_better(self, other: KernelSpeed) -> KernelSpeed:
        """The shorter times of both: disturbances only lengthen times."""
        times, other_times = self.duo, other.duo
        ahead = self.ahead if times[1] <= other_times[1] else other.ahead
        return KernelSpeed(_shorter(self.stock, other.stock), _shorter(self.duo, other.duo), ahead)

    def duo_is_faster(self, *, drafted: bool) -> bool:
        """Whether duo is faster for a whole text, prompt included, or as fast (`TIE`). drafted: whether passes verify
        guesses."""
        return _is_chosen(*(self.cost(kind, self, drafted=drafted) for kind in KINDS))

    def cost(self, kind: Kind, of_prompt: KernelSpeed, *, drafted: bool) -> float:
        """Microseconds for a whole text. of_prompt: the speed of the team that reads the prompt."""
        times, prompt = (speed.duo if kind == "duo" else speed.stock for speed in (self, of_prompt))
        passes = PASSES_DRAFTED if drafted else PASSES_PLAIN
        return sum(n * (prompt if w == PROMPT else times)[w] for w, n in passes.items())


def _is_chosen(duo_us: float, stock_us: float) -> bool:
    return TIE * duo_us < stock_us


class RaceRecord(NamedTuple):
    """The record of races that the cache keeps."""

    speed: KernelSpeed
    n_disturbed: int  # races so far, if other programs worked during each of them; 0: one had the machine for itself


def _shorter(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    return {w: min(us, b.get(w, us)) for w, us in a.items()}


def available() -> str:
    """The instruction set of duo's kernels, such as "avx512" or "neon_dot"; empty if only stock kernels run here."""
    return _core.kernels()[0]


@cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the processor. Linux on ARM gives only numbers: "ARM 0x41 0xd0c"."""
    fields: dict[str, list[str]] = {}
    with suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), []).append(value.strip())
    if names := fields.get("model name"):
        return names[0]
    # For each kind of core, the numbers of the implementer and of the design.
    if cores := set(zip(fields.get("CPU implementer", []), fields.get("CPU part", []), strict=False)):
        return "ARM " + ", ".join(" ".join(core) for core in sorted(cores))
    import platform

    if sys.platform == "darwin":
        import subprocess

        with suppress(OSError, subprocess.SubprocessError):
            brand = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(brand, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    return platform.processor() or platform.machine()


def cache_file() -> Path:
    return cache_folder() / "kernels.json"


def _key(weight_type: str, n_threads: int) -> str:
    kernels = f"{available()} {_core.KERNELS_VERSION}"
    return " | ".join([processor(), f"{n_threads} threads", guard.stock_name(), kernels, weight_type])


def measure(
    weight_type: str, teams: Sequence[int], widths: Sequence[int] = WIDTHS, race_us: int = RACE_US
) -> list[KernelSpeed]:
    """Times duo's kernels and stock ones on a matrix of this type, for each team (a number of threads).

    Raises BadValueError (there are no such kernels) or DoesNotFitError (memory).
    """
    speeds = []
    for ahead, times in _core.race(weight_type, widths, teams, race_us):
        # Disturbances only lengthen times, and fewer inputs never take longer than more.
        stock, duo = (
            {w: min(pair[side] for v, pair in zip(widths, times, strict=True) if v >= w) for w in widths}
            for side in (0, 1)
        )
        speeds.append(KernelSpeed(stock, duo, ahead))
    return speeds


def _read(entry: object) -> RaceRecord | None:
    """A record from the cache; None if there is none or it is damaged."""
    if not isinstance(entry, dict):
        return None
    try:
        stock, duo = ({int(w): float(us) for w, us in entry[kind].items()} for kind in ("stock", "duo"))
        record = RaceRecord(KernelSpeed(stock, duo, int(entry["ahead"])), int(entry.get("n_disturbed", 0)))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    is_complete = all(times.get(w, 0.0) > 0.0 for times in (stock, duo) for w in WIDTHS)
    return record if is_complete and 0 <= record.speed.ahead < 2**31 and record.n_disturbed >= 0 else None


def cached_speed(weight_type: str, n_threads: int) -> KernelSpeed | None:
    """The result of earlier races; None if there is none. Starts no race."""
    key = _key(weight_type, n_threads)
    if key in RACED:
        return RACED[key]
    record = _read(recall(cache_file()).get(key))
    return record.speed if record else None


def speeds_of(weight_type: str, teams: tuple[int, ...]) -> list[KernelSpeed] | None:
    """The speed for each number of threads. The first time a race takes some tenths of a second; later the result is
    read from `cache_file()`. It keeps the measurements and not the decision, so another question needs no new race.
    If other programs worked during the race, later processes race again, `N_DISTURBED` times at most.

    None if no race is possible: there are too many threads, or there is not enough memory.
    """
    races = recall(cache_file())
    records = {n: _read(races.get(_key(weight_type, n))) for n in teams}
    speeds = {
        n: RACED.get(_key(weight_type, n)) or (r.speed if r and _is_settled(r) else None) for n, r in records.items()
    }
    missing = [n for n, speed in speeds.items() if speed is None]
    if missing:
        before = Moment.now()
        try:
            new_speeds = measure(weight_type, missing)
        except (BadValueError, DoesNotFitError):
            # There are too many threads (the engine reports that), or there is no memory (then packing has none).
            return None
        disturbed = (other_cores(before, Moment.now()) or 0.0) > QUIET_CORES
        for n, speed in zip(missing, new_speeds, strict=True):
            old = records[n]
            speed = speed.or_better(old.speed) if old else speed
            speeds[n] = RACED[_key(weight_type, n)] = speed
            record = RaceRecord(speed, (old.n_disturbed if old else 0) + 1 if disturbed else 0)
            if guard.is_build_known():
                entry = {**record.speed._asdict(), "n_disturbed": record.n_disturbed}
                remember(cache_file(), _key(weight_type, n), entry, N_RACES)
    return [speed for speed in speeds.values() if speed is not None]


def _is_settled(r: RaceRecord) -> bool:
    return r.n_disturbed == 0 or r.n_disturbed >= N_DISTURBED


def speed_of(weight_type: str, n_threads: int) -> KernelSpeed | None:
    """As speeds_of, for one number of threads."""
    speeds = speeds_of(weight_type, (n_threads,))
    return speeds[0] if speeds else None


def duo_is_faster(weight_type: str, teams: Sequence[int], of_prompt: int, *, drafted: bool) -> bool:
    """teams: numbers of threads that compute passes, one after the other. of_prompt: number of threads for prompts.
    drafted: see `Speed.duo_is_faster`."""
    speeds = speeds_of(weight_type, tuple(dict.fromkeys([*teams, of_prompt])))
    if not speeds:
        return False
    by_team = dict(zip(dict.fromkeys([*teams, of_prompt]), speeds, strict=True))
    duo, stock = (sum(by_team[n].cost(kind, by_team[of_prompt], drafted=drafted) for n in teams) for kind in KINDS)
    return _is_chosen(duo, stock)


def chosen_types(
    choice: CpuKernels,
    path: str,
    n_gpu_layers: int,
    teams: Sequence[int],
    of_prompt: int,
    *,
    drafted: bool = True,
    overrides: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """The types of this file's weights on the CPU that duo's kernels multiply. n_gpu_layers < 0: all layers.
    overrides: (pattern, memory) from -ot. For the other arguments see `duo_is_faster`.

    Raises BadValueError if the user asks for duo's kernels and they cannot be used.
    """
    name, why_not = _core.kernels()
    if choice == "duo" and not name:
        raise BadValueError(f"duo's CPU kernels cannot be used: {why_not}; leave out --cpu-kernels duo")
    if choice == "stock" or not name or not os.path.isfile(path):
        return []
    types = [t for t in _core.cpu_types(os.fsencode(path), n_gpu_layers, overrides) if t in _core.kernel_types()]
    return types if choice == "duo" else [t for t in types if duo_is_faster(t, teams, of_prompt, drafted=drafted)]


def read_ahead(weight_types: Sequence[str], n_threads: int) -> None:
    """Sets how far duo's kernels read ahead in weights of these types, to the best value for such a team if a race has
    found it. The setting applies to all models of this process."""
    for weight_type in weight_types:
        if (speed := cached_speed(weight_type, n_threads)) is not None:
            _core.read_ahead_of(weight_type, speed.ahead)
