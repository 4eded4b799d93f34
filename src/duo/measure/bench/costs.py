"""What passes and steps cost and how often drafted tokens are right, as one run measured it: the bound's a, c and v."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duo import _core
from duo.measure.bench.bound import PassCost, conditional, overlapped_bound, pass_cost
from duo.measure.bench.record import Record

# Fewer tokens accepted than this say little about the next position: the last well-known chance goes on there.
WELL_KNOWN = 20


@dataclass(frozen=True)
class Costs:
    """Medians over the answers of a run, milliseconds. Empty where the engine does not tell."""

    pass_ms: dict[int, float]  # target, by rows of a pass
    step_ms: dict[int, float]  # draft, by nodes expanded in a step

    @property
    def one_ms(self) -> float | None:
        """A pass over one token."""
        return self.pass_ms.get(1)

    @property
    def c(self) -> float | None:
        """A step of the draft in passes over one token."""
        step = self.step_ms.get(1)
        return step / self.one_ms if step is not None and self.one_ms else None

    @property
    def v(self) -> PassCost | None:
        """A pass over n tokens in passes over one token."""
        try:
            return pass_cost(self.pass_ms)
        except ValueError:
            return None

    def bound(self, a: Sequence[float]) -> float | None:
        """`overlapped_bound` with these costs; None where they or `a` are not known."""
        c, v = self.c, self.v
        return overlapped_bound(a, c, v, _core.N_DRAFT_MAX) if a and c is not None and v is not None else None


def _medians(records: Iterable[Record], key: str) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for r in records:
        for width, ms in (r.timings.get(key) or {}).items():
            if ms:  # 0: not measured
                found.setdefault(int(width), []).append(ms)
    return {w: statistics.median(found[w]) for w in sorted(found)}


def costs_of(records: Sequence[Record]) -> Costs:
    """Of all arms together: they ran on the same models, and each mostly makes passes of one width."""
    pass_ms = _medians(records, "pass_ms")
    plain = [1e3 * r.seconds / r.n_timed for r in records if r.arm.mode == "plain" and r.n_timed]
    if pass_ms and 1 not in pass_ms and plain:  # a target whose passes always have two rows or more
        pass_ms = {1: statistics.median(plain), **pass_ms}
    return Costs(pass_ms, _medians(records, "step_ms"))


def accepted_by_position(records: Iterable[Record]) -> tuple[list[float], float]:
    """Tokens accepted at each position of all verifications together, and the number of verifications."""
    counts: list[float] = []
    rounds = 0.0
    for r in records:
        n = r.timings.get("draft_rounds") or 0
        shares = r.timings.get("draft_acceptance_by_position") or []
        counts += [0.0] * (len(shares) - len(counts))
        for i, share in enumerate(shares):
            counts[i] += share * n
        rounds += n
    return counts, rounds


def acceptances(records: Sequence[Record]) -> list[float]:
    """Conditional chances of acceptance by position, from the longest sync arm: it verifies all positions each time.

    An async arm verifies as many as pay, so its shares by position are too low; it is asked only if no sync arm ran.
    """
    drafted = {r.arm for r in records if r.arm.mode != "plain"}
    if not drafted:
        return []
    longest = max(drafted, key=lambda arm: (arm.mode == "sync", arm.n_draft if isinstance(arm.n_draft, int) else 0))
    counts, rounds = accepted_by_position(r for r in records if r.arm == longest)
    if not rounds:
        return []
    before = [rounds, *counts]
    n_known = next((i for i in range(1, len(counts)) if before[i] < WELL_KNOWN), len(counts))
    return conditional([n / rounds for n in counts[:n_known]])
