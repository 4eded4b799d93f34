"""Computes figures of several texts at once: for each arm and number of texts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from duo.measure.bench.arms import PLAIN, Arm
from duo.measure.bench.measures import Spread, arms_in, share, spread, total
from duo.measure.bench.record import Record
from duo.measure.bench.slots import Round


@dataclass(frozen=True)
class SlotSummary:
    """Figures of one arm with so many texts at once. Shares are 0 to 1, times in ms. None: not measured."""

    arm: Arm
    slots: int
    n_answers: int
    n_tokens: int
    tokens_per_s: Spread | None  # of all texts together, prompts included; over repetitions
    to_one_by_one: float | None  # to async with one text at a time; without async, to plain
    to_plain: float | None  # to plain with as many texts at once
    to_best_sync: float | None  # to the fastest turn-taking with as many texts at once
    ttft_ms: Spread | None  # over texts
    p50_ms: float | None  # between consecutive tokens of a text; tokens of one pass arrive together
    p99_ms: float | None
    acceptance: float | None  # accepted / verified
    equal_share: float | None  # answers with the tokens that plain has with one text at a time
    fairness: float | None  # speed of the slowest text / mean speed of all; the median over repetitions


Speeds = dict[tuple[Arm, int], dict[int, float]]  # by repetition


def _speeds(rounds: Iterable[Round]) -> Speeds:
    """Tokens per second of all texts together."""
    found: Speeds = {}
    for r in rounds:
        n_tokens = sum(len(x.tokens) for x in r.records)
        if n_tokens and r.seconds > 0:
            found.setdefault((r.arm, r.slots), {})[r.repetition] = n_tokens / r.seconds
    return found


def _ratio(speeds: Speeds, mine: tuple[Arm, int], other: tuple[Arm, int] | None) -> float | None:
    """The median of the ratios in the same repetition."""
    if other is None:
        return None
    a, b = speeds.get(mine, {}), speeds.get(other, {})
    ratios = [speed / b[repetition] for repetition, speed in a.items() if repetition in b]
    return statistics.median(ratios) if ratios else None


def _fairness(records: Sequence[Record]) -> float | None:
    speeds = [r.n_timed / r.seconds for r in records if r.n_timed and r.seconds > 0]
    return min(speeds) / statistics.fmean(speeds) if speeds else None


def _best_sync(speeds: Speeds, slots: int) -> tuple[Arm, int] | None:
    median = {key: statistics.median(v.values()) for key, v in speeds.items() if key[1] == slots}
    return max((k for k in median if k[0].mode == "sync"), key=lambda k: median[k], default=None)


def summarise_slots(rounds: Sequence[Round]) -> list[SlotSummary]:
    """The figures by number of texts, then by arm."""
    speeds = _speeds(rounds)
    arms = arms_in(x for r in rounds for x in r.records)
    one = next((arm for arm in arms if arm.mode == "async"), PLAIN), 1
    right = {(x.question_id, x.turn): x.tokens for r in rounds if (r.arm, r.slots) == (PLAIN, 1) for x in r.records}
    out = []
    for slots in sorted({r.slots for r in rounds}):
        sync = _best_sync(speeds, slots)
        for arm in arms:
            mine = [r for r in rounds if (r.arm, r.slots) == (arm, slots)]
            if mine:
                records = [x for r in mine for x in r.records]
                key = (arm, slots)
                ratios = [_ratio(speeds, key, other) for other in (one, (PLAIN, slots), sync)]
                out.append(_summary(key, mine, records, speeds, ratios, right))
    return out


def _summary(
    key: tuple[Arm, int],
    rounds: Sequence[Round],
    records: Sequence[Record],
    speeds: Speeds,
    ratios: Sequence[float | None],
    right: dict[tuple[int | str, int], tuple[int, ...]],
) -> SlotSummary:
    arm, slots = key
    gaps = [g for r in records for g in r.gaps_ms]
    p50, p99 = (float(p) for p in np.percentile(gaps, (50, 99))) if gaps else (None, None)
    same = [r.tokens == right[r.question_id, r.turn] for r in records if (r.question_id, r.turn) in right]
    fair = [f for f in (_fairness(r.records) for r in rounds) if f is not None]
    to_one, to_plain, to_sync = ratios
    return SlotSummary(
        arm=arm,
        slots=slots,
        n_answers=len(records),
        n_tokens=sum(len(r.tokens) for r in records),
        tokens_per_s=spread(list(speeds.get(key, {}).values())),
        to_one_by_one=to_one,
        to_plain=to_plain,
        to_best_sync=to_sync,
        ttft_ms=spread([r.timings["ttft_ms"] for r in records if r.timings.get("ttft_ms") is not None]),
        p50_ms=p50,
        p99_ms=p99,
        acceptance=share(total(records, "draft_n_accepted"), total(records, "draft_n")),
        equal_share=sum(same) / len(same) if same else None,
        fairness=statistics.median(fair) if fair and slots > 1 else None,
    )


def as_json(
    rounds: Sequence[Round],
    head: dict[str, Any],
    notes: Iterable[str] = (),
    *,
    raw: bool = False,
    complete: bool = True,
) -> dict[str, Any]:
    """All figures as one JSON object. raw: include every answer. complete: False if Ctrl-C ended the run early."""

    def plain(item: SlotSummary | Round) -> dict[str, Any]:
        arm = {"arm": item.arm.name, "mode": item.arm.mode, "n_draft": item.arm.n_draft}
        return {**arm, **{k: v for k, v in asdict(item).items() if k != "arm"}}

    out = {**head, "complete": complete, "summaries": [plain(s) for s in summarise_slots(rounds)], "notes": [*notes]}
    return {**out, "rounds": [plain(r) for r in rounds]} if raw else out
