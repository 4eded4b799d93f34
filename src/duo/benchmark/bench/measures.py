"""Computes figures from records: for each arm over all questions, and in each category."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from duo.benchmark.bench.arms import PLAIN, Arm
from duo.benchmark.bench.bound import hit_miss
from duo.benchmark.bench.costs import Costs, acceptances, accepted_by_position, costs_of
from duo.benchmark.bench.record import AnswerRecord
from duo.options.option import Mode

ALL = "all"


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Figures of one arm in one category. Shares are 0 to 1, times in ms. None: not measured or not applicable."""

    arm: Arm
    category: str
    n_answers: int
    n_tokens: int
    tokens_per_s: Spread | None  # over questions and repetitions
    to_plain: Spread | None  # speed-up, over questions
    to_best_sync: Spread | None
    mean_length: float | None  # 1 + accepted tokens per verification
    acceptance: float | None  # accepted / verified
    acceptance_by_position: tuple[float, ...]
    hit_rate: float | None  # passes whose last token the draft had guessed / passes
    tokens_on_hit: float | None  # tokens of a pass after a hit
    tokens_on_miss: float | None
    rollback_share: float | None
    ttft_ms: Spread | None
    p50_ms: float | None  # between consecutive tokens; tokens of one pass arrive together
    p95_ms: float | None
    p99_ms: float | None
    target_busy_share: float | None
    draft_busy_share: float | None
    draft_hidden_share: float | None
    equal_share: float | None  # answers with the same tokens as plain
    bound: float | None  # speed-up, see duo.benchmark.bench.bound
    efficiency: float | None  # measured / bound
    hit_miss: float | None
    efficiency_hit_miss: float | None


def arms_in(records: Iterable[AnswerRecord]) -> list[Arm]:
    """The arms by server in the order plain, sync, async; within a mode auto first, then by length."""
    modes = (*get_args(Mode), None)
    arms = list(dict.fromkeys(r.arm for r in records))
    servers = list(dict.fromkeys(arm.server for arm in arms))

    def rank(arm: Arm) -> tuple[int, int, int]:
        length = arm.n_draft if isinstance(arm.n_draft, int) else 0
        return servers.index(arm.server), modes.index(arm.mode), length

    return sorted(arms, key=rank)


def categories_in(records: Iterable[AnswerRecord]) -> list[str]:
    return list(dict.fromkeys(r.category for r in records))


def best_sync(records: Sequence[AnswerRecord]) -> Arm | None:
    """The sync arm with the highest speed-up over plain; None: there is none."""
    ratios = {arm: ratio_to(records, arm, PLAIN) for arm in arms_in(records) if arm.mode == "sync"}
    medians = {arm: spread.median for arm, spread in ratios.items() if spread is not None}
    return max(medians, key=lambda arm: medians[arm], default=None)


def summarise(records: Sequence[AnswerRecord]) -> list[Summary]:
    """The figures of all arms over all questions, then by category if there are several."""
    sync, costs = best_sync(records), costs_of(records)
    categories = categories_in(records)
    out = []
    for category in [ALL, *categories] if len(categories) > 1 else [ALL]:
        part = [r for r in records if category in (ALL, r.category)]
        a = acceptances(part)
        out += [_summary(part, arm, category, sync, costs, a) for arm in arms_in(part)]
    return out


def _speeds(records: Iterable[AnswerRecord], arm: Arm) -> dict[tuple[int | str, int], float]:
    """(question, repetition) -> tokens/s over its turns; answers with a single token have no speed."""
    tokens: dict[tuple[int | str, int], int] = {}
    seconds: dict[tuple[int | str, int], float] = {}
    for r in records:
        if r.arm == arm:
            key = (r.question_id, r.repetition)
            tokens[key] = tokens.get(key, 0) + r.n_timed
            seconds[key] = seconds.get(key, 0.0) + (r.seconds if r.n_timed else 0.0)
    return {key: n / seconds[key] for key, n in tokens.items() if seconds[key] > 0}


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    low, median, high = np.percentile(values, (25, 50, 75))
    return Spread(float(median), float(low), float(high))


def ratio_to(records: Sequence[AnswerRecord], arm: Arm, other: Arm) -> Spread | None:
    """The speed-up over another arm, over all questions. The ratio of a question is the median of its repetitions."""
    speeds, other_speeds = _speeds(records, arm), _speeds(records, other)
    by_question: dict[int | str, list[float]] = {}
    for key, speed in speeds.items():
        if key in other_speeds:
            by_question.setdefault(key[0], []).append(speed / other_speeds[key])
    return spread([float(np.median(ratios)) for ratios in by_question.values()])


def total(records: Iterable[AnswerRecord], key: str) -> float | None:
    values = [r.timings[key] for r in records if r.timings.get(key) is not None]
    return float(sum(values)) if values else None


def share(part: float | None, total: float | None) -> float | None:
    return part / total if part is not None and total else None


Weight = Callable[[Mapping[str, Any]], float]


def _mean(records: Iterable[AnswerRecord], key: str, weight: Weight = lambda _: 1.0) -> float | None:
    pairs = [(r.timings[key], weight(r.timings)) for r in records if r.timings.get(key) is not None]
    total = sum(w for _, w in pairs)
    return sum(x * w for x, w in pairs) / total if total else None


def _hits(t: Mapping[str, Any]) -> float:
    return float(t.get("draft_hit_n") or 0)


def _misses(t: Mapping[str, Any]) -> float:
    return float(t.get("target_passes_n") or 0) - _hits(t)


def compared_to_plain(records: Sequence[AnswerRecord], arm: Arm) -> list[bool]:
    """For each answer of this arm that plain gave too: whether both have the same tokens."""
    plain = {(r.question_id, r.repetition, r.turn): r.tokens for r in records if r.arm == PLAIN}
    answers = [((r.question_id, r.repetition, r.turn), r.tokens) for r in records if r.arm == arm]
    return [tokens == plain[key] for key, tokens in answers if key in plain]


def _equal_share(records: Sequence[AnswerRecord], arm: Arm) -> float | None:
    same = compared_to_plain(records, arm)
    return sum(same) / len(same) if same else None


def modelled(records: Sequence[AnswerRecord], costs: Costs) -> float | None:
    """`hit_miss` with the figures of this arm."""
    v, c, one_ms = costs.v, costs.c, costs.one_ms
    passes, hits = total(records, "target_passes_n"), total(records, "draft_hit_n")
    e_hit = _mean(records, "draft_hit_tokens_per_pass", _hits)
    e_miss = _mean(records, "draft_miss_tokens_per_pass", _misses)
    if v is None or c is None or not one_ms or not passes or hits is None:
        return None
    misses = passes - hits
    if (hits and e_hit is None) or (misses and e_miss is None):
        return None
    k = (total(records, "draft_n") or 0.0) / passes
    wait = (total(records, "verify_wait_ms") or 0.0) / one_ms / misses if misses else 0.0
    return hit_miss(hits / passes, e_hit or 0.0, e_miss or 0.0, v(1 + k), k * c, wait)


def _summary(
    part: Sequence[AnswerRecord], arm: Arm, category: str, sync: Arm | None, costs: Costs, a: Sequence[float]
) -> Summary:
    records = [r for r in part if r.arm == arm]
    gaps = [g for r in records for g in r.gaps_ms]
    p50, p95, p99 = (float(p) for p in np.percentile(gaps, (50, 95, 99))) if gaps else (None, None, None)
    drafts = arm.mode != "plain"
    accepted, rounds = total(records, "draft_n_accepted"), total(records, "draft_rounds")
    length = share(accepted, rounds)
    counts, n_rounds = accepted_by_position(records)
    to_plain = ratio_to(part, arm, PLAIN)
    bound, expected = (costs.bound(a), modelled(records, costs)) if drafts else (None, None)
    return Summary(
        arm=arm,
        category=category,
        n_answers=len(records),
        n_tokens=sum(len(r.tokens) for r in records),
        tokens_per_s=spread(list(_speeds(records, arm).values())),
        to_plain=to_plain,
        to_best_sync=None if sync is None else ratio_to(part, arm, sync),
        mean_length=None if length is None else 1 + length,
        acceptance=share(accepted, total(records, "draft_n")),
        acceptance_by_position=tuple(n / n_rounds for n in counts) if n_rounds else (),
        hit_rate=share(total(records, "draft_hit_n"), total(records, "target_passes_n")) if drafts else None,
        tokens_on_hit=_mean(records, "draft_hit_tokens_per_pass", _hits) if drafts else None,
        tokens_on_miss=_mean(records, "draft_miss_tokens_per_pass", _misses) if drafts else None,
        rollback_share=_mean(records, "draft_rollback_share"),
        ttft_ms=spread([r.timings["ttft_ms"] for r in records if r.timings.get("ttft_ms") is not None]),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        target_busy_share=_mean(records, "target_busy_share"),
        draft_busy_share=_mean(records, "draft_busy_share"),
        draft_hidden_share=_mean(records, "draft_hidden_share"),
        equal_share=_equal_share(part, arm),
        bound=bound,
        efficiency=share(None if to_plain is None else to_plain.median, bound),
        hit_miss=expected,
        efficiency_hit_miss=share(None if to_plain is None else to_plain.median, expected),
    )
