"""How many cores other programs used while something was measured."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from typing_extensions import Self

QUIET_CORES = 0.25  # that other programs may use before a measurement is in doubt

# Columns of the first line of /proc/stat: user nice system idle iowait irq softirq steal
BUSY = (0, 1, 2, 5, 6, 7)


class Moment(NamedTuple):
    """Seconds since some beginning."""

    wall: float
    all_programs: float | None  # CPU time of the machine; None: this system does not say
    this_program: float

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self:
        try:
            fields = stat.read_text().split("\n", 1)[0].split()[1:]
            ticks = sum(int(fields[i]) for i in BUSY)
            busy = ticks / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            busy = None
        return cls(time.monotonic(), busy, time.process_time())


def other_cores(before: Moment, after: Moment) -> float | None:
    """Cores that other programs, and other machines on this host, used between two moments; None: not known."""
    wall = after.wall - before.wall
    if before.all_programs is None or after.all_programs is None or wall <= 0:
        return None
    own = after.this_program - before.this_program
    return max(0.0, (after.all_programs - before.all_programs - own) / wall)
