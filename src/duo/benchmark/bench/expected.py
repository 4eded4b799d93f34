"""What a draft should bring, computed from the sizes of a pair: for pairs that nobody has measured."""

from __future__ import annotations

from typing import NamedTuple

from duo.benchmark.bench.bound import best_sync, overlapped_bound, pass_cost
from duo.models.pairs import Pair

# Milliseconds of a pass by width: a Q4_K_M target on one core with AVX-512, measured by `make bench`.
PASS_MS = {1: 12.205, 2: 12.483, 3: 12.85, 4: 13.2, 5: 13.993, 6: 15.136, 8: 17.746}
PASS_MS_FROM = "AMD EPYC with AVX-512, commit 682426fe74"
ACCEPTANCES = (0.6, 0.75, 0.9)
K_MOST = 8


class Turns(NamedTuple):
    """Taking turns on one device, with the best number of guesses. speed: a multiple of the target alone."""

    n_draft: int
    speed: float


class Expected(NamedTuple):
    """Multiples of the target alone, for each of ACCEPTANCES."""

    target_gb: float
    draft_gb: float
    turns: tuple[Turns, ...]  # both models on one device
    own_device: tuple[float, ...]  # the limit where the draft has a device as fast as the target's

    @property
    def c(self) -> float:
        """A step of the draft by a pass of the target: the ratio of what both read."""
        return self.draft_gb / self.target_gb


def expected(pair: Pair) -> Expected | None:
    """None: sizes do not tell, because one is unknown or a pass reads only some experts."""
    target, draft = pair.target, pair.draft
    if draft is None or target.repo is None or target.dense_gb is not None:
        return None
    if target.memory_gb is None or draft.memory_gb is None:
        return None
    c, v = draft.memory_gb / target.memory_gb, pass_cost(PASS_MS)
    return Expected(
        target.memory_gb,
        draft.memory_gb,
        tuple(Turns(*best_sync([a], c, v, K_MOST)) for a in ACCEPTANCES),
        tuple(overlapped_bound([a], c, v, K_MOST) for a in ACCEPTANCES),
    )


def sentence(e: Expected) -> str:
    """For a person."""
    low, high = ACCEPTANCES[0], ACCEPTANCES[-1]
    if e.turns[-1].speed <= 1:
        shared = "on one device it does not pay"
    else:
        shared = f"on one device {max(1.0, e.turns[0].speed):.2f} to {e.turns[-1].speed:.2f} times the target alone"
    return (
        f"computed from sizes, not measured: if {low:.0%} to {high:.0%} of the guesses are right, {shared}, and at "
        f"most {e.own_device[0]:.2f} to {e.own_device[-1]:.2f} with a device of its own for the draft"
    )
