"""The measured costs of passes and steps and the acceptance of drafted tokens: a, c and v of the bound."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duo.benchmark.bench.bound import PassCost, conditional, overlapped_bound, pass_cost
from duo.benchmark.bench.record import AnswerRecord
from duo.options.option import N_DRAFT_MAX

# With fewer accepted tokens the next position is unreliable; then the last reliable probability is used.
WELL_KNOWN = 20


@dataclass(frozen=True)
class Costs:
    """Medians over the answers of a run in milliseconds. Empty: the engine has no figures."""

    pass_ms: dict[int, float]  # target, by rows of a pass
    step_ms: dict[int, float]  # draft, by nodes expanded in a step

    @property
    def one_ms(self) -> float | None:
        """Time of a pass over one token in ms."""
        return self.pass_ms.get(1)

    @property
    def c(self) -> float | None:
        """Time of a draft step, in passes over one token."""
        step = self.step_ms.get(1)
        return step / self.one_ms if step is not None and self.one_ms else None

    @property
    def v(self) -> PassCost | None:
        """Time of a pass over n tokens, in passes over one token."""
        try:
            return pass_cost(self.pass_ms)
        except ValueError:
            return None

    def bound(self, a: Sequence[float]) -> float | None:
        """`overlapped_bound` with these costs; None: they or `a` are unknown."""
        c, v = self.c, self.v
        return overlapped_bound(a, c, v, N_DRAFT_MAX) if a and c is not None and v is not None else None


def _medians(records: Iterable[AnswerRecord], key: str) -> dict[int, float]:
    times: dict[int, list[float]] = {}
    for r in records:
        for width, ms in (r.timings.get(key) or {}).items():
            if ms:  # 0: not measured
                times.setdefault(int(width), []).append(ms)
    return {w: statistics.median(times[w]) for w in sorted(times)}


def costs_of(records: Sequence[AnswerRecord]) -> Costs:
    """The costs from all arms together: they use the same models, and most passes of an arm have the same width."""
    pass_ms = _medians(records, "pass_ms")
    plain = [1e3 * r.seconds / r.n_timed for r in records if r.arm.mode == "plain" and r.n_timed]
    if pass_ms and 1 not in pass_ms and plain:  # all passes of this target have two rows or more
        pass_ms = {1: statistics.median(plain), **pass_ms}
    return Costs(pass_ms, _medians(records, "step_ms"))


def accepted_by_position(records: Iterable[AnswerRecord]) -> tuple[list[float], float]:
    """The tokens accepted at each position over all verifications, and the number of verifications."""
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


def acceptances(records: Sequence[AnswerRecord]) -> list[float]:
    """Conditional probabilities of acceptance by position, from the sync arm with the greatest length.

    It verifies all positions every time. An async arm verifies only as many as pay, so its shares by position are too
    low; it is used only if there is no sync arm.
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
