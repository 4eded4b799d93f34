"""How many threads may this process use, and which CPUs: affinity, hyper-threads, container limits, OpenMP's variables.

`usable_cores()` is the default of every number of threads. All that computes is told its number: ggml and libgomp
would ask the machine, and neither knows of a container's limit.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from duo.errors import DuoError

ROOT = Path("/")


class _Mount(NamedTuple):
    """A line of /proc/self/mountinfo (proc_pid_mountinfo(5)) that shows control groups."""

    root: PurePosixPath  # the group that is seen at `point`
    point: PurePosixPath
    version: int
    controllers: frozenset[str]  # of version 1


def usable_cores(root: Path = ROOT) -> int:
    """Threads that compute well in this process: the cores it may run on, at most what it is allowed. At least 1.

    Bounds: `core_cpus`, `cpu_quota`, `omp_limit`. root: where /proc and /sys are, for tests.
    """
    n = len(core_cpus(root))
    quota = cpu_quota(root)
    if quota is not None:
        # Rounded down: a thread more than the quota pays for is stopped for a part of each period, and the whole team
        # waits for it at every barrier. 2.5 CPUs are two threads at full speed, or three at a worse one.
        n = min(n, int(quota))
    limit = omp_limit()
    return max(1, n if limit is None else min(n, limit))


def core_cpus(root: Path = ROOT) -> list[int]:
    """The first CPU of each core that this process may run on (taskset, cpusets); two hyper-threads of one core count
    once. Elsewhere than on Linux the numbers are only a count: macOS's performance cores, Windows's processors."""
    try:
        cpus = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return list(range(_fast_cores() or os.cpu_count() or 1))
    first_of: dict[str, int] = {}
    for cpu in cpus:
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        first_of.setdefault(_text(siblings).strip() or str(cpu), cpu)
    return list(first_of.values())


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs' worth of time that this process's control groups grant it; None: no limit, or none that can be read.

    The smallest of its own group's and all its ancestors' that can be seen: `cpu.max` of version 2,
    `cpu.cfs_quota_us` / `cpu.cfs_period_us` of version 1 (Linux: Documentation/admin-guide/cgroup-v2.rst,
    Documentation/scheduler/sched-bwc.rst). In a container the topmost group that is seen is the container's own.
    """
    quotas = [q for group in _groups(root) for q in (_quota_v2(group), _quota_v1(group)) if q is not None]
    return min(quotas, default=None)


def omp_limit(env: Mapping[str, str] = os.environ) -> int | None:
    """The smaller of OMP_NUM_THREADS (a list by nesting: its first number) and OMP_THREAD_LIMIT; None: neither is set
    to a number above 0, the only kind that OpenMP takes."""
    values = (env.get("OMP_NUM_THREADS", "").split(",")[0].strip(), env.get("OMP_THREAD_LIMIT", "").strip())
    return min((int(v) for v in values if re.fullmatch("[0-9]{1,9}", v) and int(v) > 0), default=None)


def cpu_list(mask: str | None, span: str | None, *, draft: bool) -> list[int]:
    """CPU numbers from a hexadecimal mask and a LO-HI range (either end may be left out), as llama.cpp reads them.

    Raises DuoError: it is neither, or names no CPU.
    """
    cpus: set[int] = set()
    if mask is not None:
        flag = "-Cd" if draft else "-C"
        if not re.fullmatch(r"(0x)?[0-9a-f]{1,256}", mask, re.IGNORECASE):
            raise DuoError(f"the CPU mask {mask!r} ({flag}) is not hexadecimal; give for example 0x3")
        bits = int(mask, 16)
        if bits == 0:
            raise DuoError(f"the CPU mask {mask!r} ({flag}) names no CPU; give for example 0x3")
        cpus |= {i for i in range(bits.bit_length()) if bits >> i & 1}
    if span is not None:
        match = re.fullmatch(r"([0-9]{0,4})-([0-9]{0,4})", span)
        first, last = (int(match[1] or 0), int(match[2] or (os.cpu_count() or 1) - 1)) if match else (1, 0)
        if first > last:
            flag = "-Crd" if draft else "-Cr"
            raise DuoError(f"the CPU range {span!r} ({flag}) is not LO-HI; give for example 0-7")
        cpus |= set(range(first, last + 1))
    return sorted(cpus)


def _text(path: Path) -> str:
    """Empty: it cannot be read."""
    with suppress(OSError):
        return path.read_text("utf-8", "surrogateescape")
    return ""


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        places, kind = left.split(" ")[3:5], right.split(" ")
        if len(places) < 2 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        # The kernel writes a space, tab, newline or backslash as three octal digits.
        group, point = (re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), p) for p in places)
        version = 2 if kind[0] == "cgroup2" else 1
        yield _Mount(PurePosixPath(group), PurePosixPath(point), version, frozenset(kind[2].split(",")))


def _below(mount: _Mount, group: PurePosixPath) -> PurePosixPath | None:
    """The group's place under the mount's root; None: it is not there, or outside what this process may see."""
    with suppress(ValueError):
        place = group.relative_to(mount.root)
        return None if ".." in place.parts else place
    return None


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups that limit this process's CPU time, and of their ancestors that can be seen."""
    mounts = list(_mounts(root))
    for line in _text(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, group = ([*line.split(":", 2), "", ""])[:3]
        version = 2 if (hierarchy, controllers) == ("0", "") else 1
        if version == 1 and "cpu" not in controllers.split(","):
            continue
        ours = [m for m in mounts if m.version == version and (version == 2 or "cpu" in m.controllers)]
        found = [(m, place) for m in ours if (place := _below(m, PurePosixPath(group))) is not None]
        # In a container without a name space of its own for groups the path may be the host's: its top is ours.
        for mount, place in found or [(m, PurePosixPath()) for m in ours[:1]]:
            for part in (place, *place.parents):
                yield root / str(mount.point).lstrip("/") / part


def _quota_v2(group: Path) -> float | None:
    return _ratio(*([*_text(group / "cpu.max").split(), "", ""])[:2])


def _quota_v1(group: Path) -> float | None:
    return _ratio(_text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    """None: "max", -1, or no numbers above 0."""
    numbers = [int(x) if re.fullmatch("[0-9]{1,18}", x) else 0 for x in (quota, period)]
    return numbers[0] / numbers[1] if all(numbers) else None


def _fast_cores() -> int:
    """Performance cores of a Mac; a team with efficiency cores in it waits for those. 0: not known."""
    if sys.platform != "darwin":
        return 0
    libc = ctypes.CDLL(None)
    for name in (b"hw.perflevel0.physicalcpu", b"hw.physicalcpu"):  # Intel Macs know the second only
        n, size = ctypes.c_int32(0), ctypes.c_size_t(4)
        if libc.sysctlbyname(name, ctypes.byref(n), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 and n.value > 0:
            return n.value
    return 0
