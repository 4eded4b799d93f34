"""CPUs and priorities of a model's threads in passes of one row, and of several."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from duo.options.model import ModelOptions
from duo.options.threads import NICE

# CPUs (none: those of the thread), whether each thread has one of them, niceness (None: as it was).
Team = tuple[list[int], bool, int | None]
DEFAULT: Team = ([], False, None)


def teams(o: ModelOptions) -> tuple[Team, Team]:
    """Of passes of one row, and of several. Nothing is asked of a team that has only what its thread has anyway."""
    differ = bool(o.cpus_batch) or o.cpu_strict or o.cpu_strict_batch
    asked = {"prio": o.prio, "prio_batch": o.prio_batch}
    nice = {name: NICE[prio] for name, prio in asked.items() if prio is not None}
    if nice and (why := _hindrance(nice.get("prio"), nice.get("prio_batch"))):
        given = " ".join(f"{o.flag(name)} {asked[name]}" for name in nice)
        _warn(f"{given} is not possible here ({why}); the priority stays as it is")
        nice = {}
    if (o.cpus or o.cpus_batch) and (why := _pin_hindrance()):
        _warn(f"the {o.role}'s threads cannot be bound to CPUs here ({why}); they run on any CPU of this process")
    narrow, wide = (
        _dealt(cpus, o, strict=strict) if differ else []
        for cpus, strict in ((o.cpus, o.cpu_strict), (o.cpus_batch or o.cpus, o.cpu_strict_batch))
    )
    return (narrow, o.cpu_strict, nice.get("prio")), (wide, o.cpu_strict_batch, nice.get("prio_batch"))


def _dealt(cpus: tuple[int, ...], o: ModelOptions, *, strict: bool) -> list[int]:
    """In the order in which threads get one each. The draft begins with the last, because both models may have the
    same CPUs."""
    return list(reversed(cpus)) if strict and o.role == "draft" else list(cpus)


def _warn(text: str) -> None:
    import logging

    logging.getLogger("duo").warning("%s", text)


def _hindrance(narrow: int | None, wide: int | None) -> str:
    """Why a thread of this process cannot have these priorities in turn (None: its own); empty: it can."""
    if sys.platform != "linux":  # elsewhere it is that of the process
        return "threads have priorities on Linux only"
    own = os.getpriority(os.PRIO_PROCESS, 0)
    first, second = (own if nice is None else nice for nice in (narrow, wide))

    def change() -> None:
        for value in (first, second, first):
            os.setpriority(os.PRIO_PROCESS, 0, value)  # of this thread

    return _failure(change)


def _pin_hindrance() -> str:
    """Why a thread of this process cannot choose its CPUs; empty: it can."""
    if sys.platform != "linux":  # elsewhere the engine refuses CPUs
        return ""
    return _failure(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))


def _failure(act: Callable[[], None]) -> str:
    """The system's reason why this fails in a thread of its own; empty: it does not."""
    why = []

    def try_it() -> None:
        try:
            act()
        except OSError as e:
            why.append(e.strerror or str(e))

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return "".join(why)
