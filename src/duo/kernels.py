"""Which CPU kernels multiply which weights: duo's where they are faster here, measured once and remembered."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from duo import _core
from duo.errors import DuoError
from duo.option import CpuKernels
from duo.remembered import recall, remember

RACE_US = 60_000  # for one type and width
WIDTHS = (1, 4)  # plain decoding and a verification


class Speed(NamedTuple):
    """Microseconds of one product of a matrix of 64 MB, by width."""

    stock: dict[int, float]
    duo: dict[int, float]

    @property
    def duo_is_faster(self) -> bool:
        return sum(self.duo[w] for w in WIDTHS) < sum(self.stock[w] for w in WIDTHS)


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
    return " | ".join([processor(), f"{n_threads} threads", f"llama.cpp {_core.ggml_commit()}", kernels, weight_type])


def measure(weight_type: str, widths: tuple[int, ...] = WIDTHS, n_threads: int = 1, race_us: int = RACE_US) -> Speed:
    """Duo's kernels against stock ones on a matrix of this type. Raises DuoError (no kernels, no memory)."""
    speed = Speed({}, {})
    for width in widths:
        speed.stock[width], speed.duo[width] = _core.race(weight_type, width, n_threads, race_us)
    return speed


@cache
def duo_is_faster(weight_type: str, n_threads: int) -> bool:
    """Measured in a fraction of a second the first time, then read from `cache_file()`."""
    key = _key(weight_type, n_threads)
    known = recall(cache_file()).get(key)
    if not isinstance(known, bool):
        try:
            known = measure(weight_type, n_threads=n_threads).duo_is_faster
        except DuoError:  # no memory to measure: none to pack weights
            return False
        remember(cache_file(), key, known)
    return known


def chosen_types(choice: CpuKernels, path: str, n_gpu_layers: int, n_threads: int) -> list[str]:
    """The weight types of this file's CPU layers that go to duo's kernels. n_gpu_layers < 0: all layers.

    Raises DuoError if duo's kernels are asked for and cannot be had.
    """
    name, why_not = _core.kernels()
    if choice == "duo" and not name:
        raise DuoError(f"duo's CPU kernels cannot be used: {why_not}; leave out --cpu-kernels duo")
    if choice == "stock" or not name or not os.path.isfile(path):
        return []
    types = [t for t in _core.cpu_types(os.fsencode(path), n_gpu_layers) if t in _core.kernel_types()]
    return types if choice == "duo" else [t for t in types if duo_is_faster(t, n_threads)]
