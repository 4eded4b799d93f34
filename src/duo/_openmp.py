"""How idle OpenMP threads wait: set before anything loads an OpenMP library."""

from __future__ import annotations

import os


def set_wait_policy() -> None:
    """Changes nothing if the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT.

    An idle OpenMP team that spins for a long time starves the other model's team. A team that never spins pays a system
    call at each barrier. libgomp counts the threads of all teams in the process. If there are more threads than CPUs,
    as with two models that take turns, it spins only 100 times, or 1000 times with the policy "active"
    (libgomp/config/linux/wait.h, env.c). This makes up to a factor of two in speed (benchmarks/history/kernels.md).
    libgomp reads both variables once, when it is loaded.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return
    os.environ["OMP_WAIT_POLICY"] = "active"
    os.environ["GOMP_SPINCOUNT"] = "2000"
    os.environ.setdefault("KMP_BLOCKTIME", "1")  # ms; with that policy LLVM's runtime would never sleep
