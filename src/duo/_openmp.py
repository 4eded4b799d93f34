"""How idle OpenMP threads wait: set before anything loads an OpenMP library."""

from __future__ import annotations

import os

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
