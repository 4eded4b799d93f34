"""Computes figures of several texts at once: for each arm and number of texts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.measures import Spread, arms_in, share, spread, total
from duo.benchmark.bench.record import AnswerRecord
from duo.benchmark.bench.slots import Round


@dataclass(frozen=True)
class SlotSummary:
    """Figures of one arm with so many texts at once. Shares are 0 to 1, times in ms. None: not measured.

    Those from ttft_p99_ms on are of servers only.
    """

    arm: Arm
    slots: int
    n_answers: int
    n_tokens: int
    tokens_per_s: Spread | None  # of all texts together, prompts included; over repetitions
    to_one_by_one: float | None  # to async with one text at a time; without async, to plain
    to_plain: float | None  # to plain with as many texts at once
    to_best_sync: float | None  # to the fastest turn-taking with as many texts at once
    to_first: float | None  # to the first server, as it is set up, with as many texts at once
    ttft_ms: Spread | None  # over texts
    p50_ms: float | None  # between consecutive tokens of a text; tokens of one pass arrive together
    p99_ms: float | None
    acceptance: float | None  # accepted / verified
    equal_share: float | None  # answers with the tokens (of a server: the text) of plain with one text at a time
    fairness: float | None  # speed of the slowest text / mean speed of all; the median over repetitions
    ttft_p99_ms: float | None = None
    tpot_ms: Spread | None = None  # over texts: (last - first) / (tokens - 1)
    tpot_p99_ms: float | None = None
    whole_ms: Spread | None = None  # over texts: from sending to the end
    goodput: float | None = None  # answers per second within the limits; the median over repetitions
    n_refused: int | None = None  # status 429 or 503; not among the answers
    refused_share: float | None = None  # of all requests


Speeds = dict[tuple[Arm, int], dict[int, float]]  # by repetition


def _speeds(rounds: Iterable[Round]) -> Speeds:
    """Tokens per second of all texts together."""
    speeds: Speeds = {}
    for r in rounds:
        n_tokens = sum(x.n_tokens for x in r.records)
        if n_tokens and r.seconds > 0:
            speeds.setdefault((r.arm, r.slots), {})[r.repetition] = n_tokens / r.seconds
    return speeds


def _ratio(speeds: Speeds, key: tuple[Arm, int], other: tuple[Arm, int]) -> float | None:
    """The median of the ratios in the same repetition."""
    a, b = speeds.get(key, {}), speeds.get(other, {})
    ratios = [speed / b[repetition] for repetition, speed in a.items() if repetition in b]
    return statistics.median(ratios) if ratios else None


def _speed(r: AnswerRecord) -> float:
    """Tokens per second; 0: not measured. Of a server over the whole answer, because its tokens come in bursts."""
    if r.served is not None:
        return r.n_tokens * 1e3 / r.served.whole_ms if r.served.whole_ms > 0 else 0.0
    return r.n_timed / r.seconds if r.n_timed and r.seconds > 0 else 0.0


def _fairness(records: Sequence[AnswerRecord]) -> float | None:
    speeds = [s for s in map(_speed, records) if s > 0]
    return min(speeds) / statistics.fmean(speeds) if speeds else None


def _best_sync(speeds: Speeds, slots: int, server: str) -> Arm | None:
    medians = {
        arm: statistics.median(v.values()) for (arm, n), v in speeds.items() if (n, arm.server) == (slots, server)
    }
    return max((arm for arm in medians if arm.mode == "sync"), key=lambda arm: medians[arm], default=None)


def _plain_of(arms: Sequence[Arm], server: str) -> Arm | None:
    return next((arm for arm in arms if arm.server == server and arm.mode == "plain"), None)


def _main_of(arms: Sequence[Arm], server: str) -> Arm | None:
    """As the server is set up; else async; else plain."""
    of_server = [arm for arm in arms if arm.server == server]
    of_mode = {arm.mode: arm for arm in reversed(of_server)}
    return of_mode.get(None) or of_mode.get("async") or _plain_of(arms, server)


def summarise_slots(rounds: Sequence[Round]) -> list[SlotSummary]:
    """The figures by number of texts, then by arm."""
    speeds = _speeds(rounds)
    arms = arms_in(x for r in rounds for x in r.records)
    right = {
        (r.arm.server, x.question_id, x.turn): x.content
        for r in rounds
        if r.slots == 1 and r.arm == _plain_of(arms, r.arm.server)
        for x in r.records
        if not _refused(x)
    }
    first = arms[0].server if arms else ""
    out = []
    for slots in sorted({r.slots for r in rounds}):
        for arm in arms:
            arm_rounds = [r for r in rounds if (r.arm, r.slots) == (arm, slots)]
            if arm_rounds:
                records = [x for r in arm_rounds for x in r.records]
                key, server = (arm, slots), arm.server
                others = (
                    (_main_of(arms, server), 1),
                    (_plain_of(arms, server), slots),
                    (_best_sync(speeds, slots, server), slots),
                    (None if server == first else _main_of(arms, first), slots),
                )
                ratios = [None if o is None else _ratio(speeds, key, (o, n)) for o, n in others]
                out.append(_summary(key, arm_rounds, records, speeds, ratios, right))
    return out


def _refused(r: AnswerRecord) -> bool:
    return r.served is not None and r.served.refused


def _summary(
    key: tuple[Arm, int],
    rounds: Sequence[Round],
    answers: Sequence[AnswerRecord],
    speeds: Speeds,
    ratios: Sequence[float | None],
    right: Mapping[tuple[str, int | str, int], tuple[int, ...] | str],
) -> SlotSummary:
    arm, slots = key
    records = [r for r in answers if not _refused(r)]
    gaps = [g for r in records for g in r.gaps_ms]
    p50, p99 = (float(p) for p in np.percentile(gaps, (50, 99))) if gaps else (None, None)
    pairs = [(r.content, right.get((arm.server, r.question_id, r.turn))) for r in records]
    same = [content == plain_content for content, plain_content in pairs if plain_content is not None]
    fair = [f for f in (_fairness(r.records) for r in rounds) if f is not None]
    ttfts = [r.timings["ttft_ms"] for r in records if r.timings.get("ttft_ms") is not None]
    to_one, to_plain, to_sync, to_first = ratios
    return SlotSummary(
        arm=arm,
        slots=slots,
        n_answers=len(records),
        n_tokens=sum(r.n_tokens for r in records),
        tokens_per_s=spread(list(speeds.get(key, {}).values())),
        to_one_by_one=to_one,
        to_plain=to_plain,
        to_best_sync=to_sync,
        to_first=to_first,
        ttft_ms=spread(ttfts),
        p50_ms=p50,
        p99_ms=p99,
        acceptance=share(total(records, "draft_n_accepted"), total(records, "draft_n")),
        equal_share=sum(same) / len(same) if same else None,
        fairness=statistics.median(fair) if fair and slots > 1 else None,
        **(_of_server(rounds, answers, ttfts) if arm.server else {}),
    )


def _of_server(rounds: Sequence[Round], answers: Sequence[AnswerRecord], ttfts: Sequence[float]) -> dict[str, Any]:
    """What only clients of a server see."""
    served = [r.served for r in answers if r.served is not None]
    answered = [s for s in served if not s.refused]
    tpots = [s.tpot_ms for s in answered if s.tpot_ms is not None]
    has_limits = any(s.good is not None for s in served)
    good = [sum(x.served is not None and x.served.good is True for x in r.records) / r.seconds
            for r in rounds if r.seconds > 0]  # fmt: skip
    return {
        "ttft_p99_ms": float(np.percentile(ttfts, 99)) if ttfts else None,
        "tpot_ms": spread(tpots),
        "tpot_p99_ms": float(np.percentile(tpots, 99)) if tpots else None,
        "whole_ms": spread([s.whole_ms for s in answered]),
        "goodput": statistics.median(good) if has_limits and good else None,
        "n_refused": len(served) - len(answered),
        "refused_share": share(len(served) - len(answered), len(served)),
    }


def as_json(
    rounds: Sequence[Round],
    head: dict[str, Any],
    notes: Iterable[str] = (),
    *,
    raw: bool = False,
    complete: bool = True,
) -> dict[str, Any]:
    """All figures as one JSON object. raw: include every answer. complete: False if the run ended early."""

    def plain(item: SlotSummary | Round) -> dict[str, Any]:
        arm = {"arm": item.arm.name, "mode": item.arm.mode, "n_draft": item.arm.n_draft}
        if item.arm.server:
            arm["server"] = item.arm.server
        return {**arm, **{k: v for k, v in asdict(item).items() if k != "arm"}}

    out = {**head, "complete": complete, "summaries": [plain(s) for s in summarise_slots(rounds)], "notes": [*notes]}
    return {**out, "rounds": [plain(r) for r in rounds]} if raw else out
