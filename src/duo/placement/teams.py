"""CPUs and priorities of a model's threads in passes of one row, and of several."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable

from duo.options.model import ModelOptions
from duo.options.threads import NICE

# CPUs (none: those of the thread), whether each thread has one of them, niceness (None: as it was).
Team = tuple[list[int], bool, int | None]


def teams(o: ModelOptions) -> tuple[Team, Team]:
    """Of passes of one row, and of several. Nothing is asked of a team that has only what its thread has anyway."""
    differ = bool(o.cpus_batch) or o.cpu_strict or o.cpu_strict_batch
    asked = {"prio": o.prio, "prio_batch": o.prio_batch}
    nice = {name: NICE[prio] for name, prio in asked.items() if prio is not None}
    if nice and (why := _hindrance(nice.values())):
        import logging

        given = " ".join(f"{o.flag(name)} {asked[name]}" for name in nice)
        logging.getLogger("duo").warning("%s is not possible here (%s); the priority stays as it is", given, why)
        nice = {}
    narrow, wide = (list(cpus) if differ else [] for cpus in (o.cpus, o.cpus_batch or o.cpus))
    return (narrow, o.cpu_strict, nice.get("prio")), (wide, o.cpu_strict_batch, nice.get("prio_batch"))


def _hindrance(nice: Iterable[int]) -> str:
    """Why a thread of this process cannot change to these and back again; empty: it can."""
    if sys.platform != "linux":  # elsewhere it is that of the process
        return "threads have priorities on Linux only"
    why = []

    def change() -> None:
        values = [*nice, os.getpriority(os.PRIO_PROCESS, 0)]
        try:
            for value in values * 2:
                os.setpriority(os.PRIO_PROCESS, 0, value)  # of this thread
        except OSError as e:
            why.append(e.strerror or str(e))

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    return "".join(why)
