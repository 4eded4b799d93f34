"""How many threads and which CPUs this process may use: affinity, hyper-threads, container limits, OpenMP's variables.

`usable_cores()` is the default for every number of threads. Everything that computes is given a number, because ggml
and libgomp would ask the machine, and neither knows a container's limit.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path("/")
N_THREADS_MOST = 512  # of a team, as the options have it: ggml aborts on more
SLOW_CORES = ("cpu_atom", "cpu_lowpower")  # the kinds of efficiency cores of a hybrid Intel processor, in Linux


class _Mount(NamedTuple):
    """A line of /proc/self/mountinfo (proc_pid_mountinfo(5)) that mounts control groups."""

    root: PurePosixPath  # the group that is visible at `point`
    point: PurePosixPath
    version: int
    controllers: frozenset[str]  # of version 1


def usable_cores(root: Path = ROOT, *, slow: bool = False) -> int:
    """How many threads compute well in this process: one for each core that it may use, within its limits. At least 1,
    at most N_THREADS_MOST.

    The limits are `core_cpus`, `cpu_quota` and `omp_limit`. root: the parent of /proc and /sys, for tests. slow: with
    efficiency cores, for who chooses numbers of threads.
    """
    n = min(len(core_cpus(root, slow=slow)), N_THREADS_MOST)
    quota = cpu_quota(root)
    if quota is not None:
        # Rounded down: a thread beyond the quota is stopped for a part of each period, and the whole team waits for it
        # at every barrier. 2.5 CPUs run two threads at full speed, or three at a lower one.
        n = min(n, int(quota))
    limit = omp_limit()
    return max(1, n if limit is None else min(n, limit))


def core_cpus(root: Path = ROOT, *, slow: bool = False) -> list[int]:
    """The first CPU of each core that this process may run on (taskset, cpusets). Two hyper-threads of a core count
    once. Efficiency cores of Intel's count only if `slow`, or where there are no others: a team would wait for them. On
    other systems than Linux only the count has a meaning: performance cores (macOS), processors (Windows)."""
    try:
        cpus = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return list(range(_fast_cores() or os.cpu_count() or 1))
    if not slow:
        out = {cpu for kind in SLOW_CORES for cpu in _listed(_text(root / f"sys/devices/{kind}/cpus"))}
        cpus = [cpu for cpu in cpus if cpu not in out] or cpus
    first_of: dict[str, int] = {}
    for cpu in cpus:
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        first_of.setdefault(_text(siblings).strip() or str(cpu), cpu)
    return list(first_of.values())


def cpu_mask(cpus: Iterable[int]) -> str:
    """The mask in hexadecimal, as -C takes it: bit i is CPU i."""
    return hex(sum(1 << cpu for cpu in cpus))


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPU time, in CPUs, that the control groups grant to this process; None if there is no limit, or no readable one.

    This is the smallest quota of its own group and of all visible ancestors: `cpu.max` in version 2,
    `cpu.cfs_quota_us` / `cpu.cfs_period_us` in version 1 (Linux: Documentation/admin-guide/cgroup-v2.rst,
    Documentation/scheduler/sched-bwc.rst). In a container the topmost visible group is the container's own.
    """
    quotas = [q for group in _groups(root) for q in (_quota_v2(group), _quota_v1(group)) if q is not None]
    return min(quotas, default=None)


def omp_limit(env: Mapping[str, str] = os.environ) -> int | None:
    """The smaller of OMP_NUM_THREADS (the first number of the list, which is by nesting) and OMP_THREAD_LIMIT. None if
    neither is a number above 0; OpenMP accepts no others."""
    values = (env.get("OMP_NUM_THREADS", "").split(",")[0].strip(), env.get("OMP_THREAD_LIMIT", "").strip())
    return min((int(v) for v in values if re.fullmatch("[0-9]{1,9}", v) and int(v) > 0), default=None)


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    with suppress(OSError):
        return path.read_text("utf-8", "surrogateescape")
    return ""


def _listed(text: str) -> set[int]:
    """The CPUs of a list of the kernel's, such as "0-3,8"; empty if it is none."""
    spans = re.findall("([0-9]{1,6})(?:-([0-9]{1,6}))?", text) if re.fullmatch("[0-9,-]+\\s*", text) else []
    return {cpu for first, last in spans for cpu in range(int(first), int(last or first) + 1)}


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        places, kind = left.split(" ")[3:5], right.split(" ")
        if len(places) < 2 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        # The kernel writes spaces, tabs, newlines and backslashes as three octal digits.
        group, point = (re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), p) for p in places)
        version = 2 if kind[0] == "cgroup2" else 1
        yield _Mount(PurePosixPath(group), PurePosixPath(point), version, frozenset(kind[2].split(",")))


def _below(mount: _Mount, group: PurePosixPath) -> PurePosixPath | None:
    """The group's path below the mount's root; None if it is elsewhere, or not visible to this process."""
    with suppress(ValueError):
        place = group.relative_to(mount.root)
        return None if ".." in place.parts else place
    return None


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups that limit this process's CPU time, and of their visible ancestors."""
    mounts = list(_mounts(root))
    for line in _text(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, group = ([*line.split(":", 2), "", ""])[:3]
        version = 2 if (hierarchy, controllers) == ("0", "") else 1
        if version == 1 and "cpu" not in controllers.split(","):
            continue
        candidates = [m for m in mounts if m.version == version and (version == 2 or "cpu" in m.controllers)]
        places = [(m, place) for m in candidates if (place := _below(m, PurePosixPath(group))) is not None]
        # In a container without its own cgroup namespace the path may be the host's. Then the top is our group.
        for mount, place in places or [(m, PurePosixPath()) for m in candidates[:1]]:
            for part in (place, *place.parents):
                yield root / str(mount.point).lstrip("/") / part


def _quota_v2(group: Path) -> float | None:
    return _ratio(*([*_text(group / "cpu.max").split(), "", ""])[:2])


def _quota_v1(group: Path) -> float | None:
    return _ratio(_text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    """The quotient; None for "max", for -1, and if one of them is not a number above 0."""
    numbers = [int(x) if re.fullmatch("[0-9]{1,18}", x) else 0 for x in (quota, period)]
    return numbers[0] / numbers[1] if all(numbers) else None


def _fast_cores() -> int:
    """Performance cores of a Mac; a team that includes efficiency cores would wait for those. 0 if unknown."""
    if sys.platform != "darwin":
        return 0
    libc = ctypes.CDLL(None)
    for name in (b"hw.perflevel0.physicalcpu", b"hw.physicalcpu"):  # Intel Macs have only the second
        n, size = ctypes.c_int32(0), ctypes.c_size_t(4)
        if libc.sysctlbyname(name, ctypes.byref(n), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 and n.value > 0:
            return n.value
    return 0
