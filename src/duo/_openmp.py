"""What an OpenMP library reads from the environment when it is loaded: how idle threads wait, where threads run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
N_SPINS = 2000  # of libgomp, as long as there are no more threads than CPUs
POLL = 50  # what --poll means by N_SPINS, as in llama.cpp


class WaitPolicy:
    """The user's choice (--poll), until a library is loaded."""

    def __init__(self) -> None:
        self.poll: int | None = None  # 0 (sleep at once) to 100; None: POLL

    def set(self) -> None:
        """Without a choice it changes nothing if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set.

        An idle OpenMP team that spins for a long time starves the other model's team. A team that never spins pays a
        system call at each barrier. libgomp counts the threads of all teams in the process. If there are more threads
        than CPUs, as with two models that take turns, it spins only 100 times, or 1000 times with the policy "active"
        (libgomp/config/linux/wait.h, env.c). This makes up to a factor of two in speed (benchmarks/history/kernels.md).
        libgomp reads both variables once, when it is loaded.
        """
        if self.poll is None and ("GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ):
            return
        poll = POLL if self.poll is None else self.poll
        os.environ["OMP_WAIT_POLICY"] = "active" if poll else "passive"
        os.environ["GOMP_SPINCOUNT"] = str(N_SPINS * poll // POLL)
        # ms; with the policy "active" LLVM's runtime would never sleep.
        os.environ.setdefault("KMP_BLOCKTIME", "1" if poll else "0")


wait_policy = WaitPolicy()


@contextmanager
def unbound(maps: Path = Path("/proc/self/maps")) -> Iterator[None]:
    """An OpenMP library that is loaded inside binds no threads to CPUs, whatever the variables of OpenMP say.

    libgomp would bind the main thread to one CPU, all that comes later would find only that, and the threads of both
    models would share CPUs. duo has options for the CPUs of each model. Programs started later see the variables.
    """
    if _is_bound() and _has_openmp(maps):
        import logging

        logging.getLogger("duo").warning(
            "another library loaded OpenMP while %s was set, so duo's threads may share a CPU; unset it, or load duo "
            "first: from duo import _core",
            next(name for name in BINDING if name in os.environ),
        )
    hidden = {name: os.environ.pop(name) for name in BINDING if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _is_bound() -> bool:
    """Whether the variables ask for it. OMP_PROC_BIND=false counts more than places."""
    bind = os.environ.get("OMP_PROC_BIND", "").strip().lower()
    return bind != "false" and any(os.environ.get(name) for name in BINDING)


def _has_openmp(maps: Path) -> bool:
    with suppress(OSError):
        return "libgomp" in maps.read_text("utf-8", "replace")
    return False
