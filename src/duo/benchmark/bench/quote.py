"""One line of a run that a person can quote: speed-ups, texts that differ, and what it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duo.benchmark.bench.arms import ALONE, PLAIN, Arm
from duo.benchmark.bench.measures import Spread, arms_in, best_sync, compared_to_plain, ratio_to, summarise
from duo.benchmark.bench.record import AnswerRecord
from duo.support.wording import plural


def _arm(records: Sequence[AnswerRecord]) -> Arm | None:
    """What is quoted: async with duo's own draft length, as users have it, or the fastest arm of the same mode."""
    arms = arms_in(records)
    for mode in ("async", "sync"):
        ratios = {arm: ratio_to(records, arm, PLAIN) for arm in arms if arm.mode == mode}
        medians = {arm: spread.median for arm, spread in ratios.items() if spread is not None}
        if medians:
            return max(medians, key=lambda arm: (arm.n_draft == "auto", medians[arm]))
    return None


def _times(spread: Spread | None, what: str) -> list[str]:
    return [] if spread is None else [f"{spread.median:.2f}x {what}"]


def _where(head: dict[str, Any]) -> list[str]:
    """The devices of both models; the CPU as its number of cores."""
    if "synthetic" in head.get("settings", {}):
        return ["simulated models"]
    models = [head[name] for name in ("target", "draft") if name in head]
    devices = dict.fromkeys(device for m in models for device in m["devices"])
    cores = plural(head["cores"], "core") if "cores" in head else "CPU"
    return [" and ".join(cores if device == "CPU" else device for device in devices)] if devices else []


def quote(records: Sequence[AnswerRecord], head: dict[str, Any] | None = None) -> str:
    """ "1.80x plain, 1.02x the best turn-taking, 0 of 8 texts differ, 2 cores"; empty: no answer was timed.

    The best turn-taking is the sync arm with the highest speed-up. The target alone is named only where it was faster
    than plain with the draft loaded. Where only plain was measured, the line has its tokens/s.
    """
    arm, where = _arm(records), _where(head or {})
    if arm is None:
        plain = next((s.tokens_per_s for s in summarise(records) if s.arm == PLAIN), None)
        return "" if plain is None else ", ".join([f"plain: {plain.median:.1f} tokens/s", *where])
    sync, alone = best_sync(records), ratio_to(records, ALONE, PLAIN)
    parts = _times(ratio_to(records, arm, PLAIN), "plain")
    if alone is not None and alone.median > 1:
        parts += _times(ratio_to(records, arm, ALONE), "the target alone")
    if sync is not None and arm.mode == "async":
        parts += _times(ratio_to(records, arm, sync), "the best turn-taking")
    same = compared_to_plain(records, arm)
    differ = f"{same.count(False)} of {plural(len(same), 'text')} {'differs' if len(same) == 1 else 'differ'}"
    label = "" if (arm.mode, arm.n_draft) == ("async", "auto") else f"{arm.name}: "
    return label + ", ".join([*parts, differ, *where])
