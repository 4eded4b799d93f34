"""Reads a trace and computes its figures."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from duo.errors import BadValueError
from duo.generation.trace_writer import Event

WINDOW_VERIFICATIONS = 30  # as many as can be distinguished in a picture as wide as a page

Span = tuple[int, int]  # start and end, us


@dataclass(frozen=True)
class Overlap:
    """How long each model worked, and how long both worked at once."""

    wall_us: int  # from the first event's start to the last one's end
    target_busy_us: int
    draft_busy_us: int
    both_busy_us: int

    @property
    def target_busy_share(self) -> float:
        return self.target_busy_us / self.wall_us if self.wall_us else 0.0

    @property
    def draft_busy_share(self) -> float:
        return self.draft_busy_us / self.wall_us if self.wall_us else 0.0

    @property
    def hidden_share(self) -> float:
        """The share of the draft's time that cost nothing because the target was working too."""
        return self.both_busy_us / self.draft_busy_us if self.draft_busy_us else 0.0


def read_trace(path: str | Path) -> list[Event]:
    """The events of a trace that duo wrote, complete or truncated. Raises BadValueError: it is something else."""
    events = []
    read_models(path)
    for record in _records(path):
        if record.get("cat") == "duo" and record.get("ph") == "X":
            events.append(_event(record, path))
    return events


def read_models(path: str | Path) -> tuple[str, str | None]:
    """The names of target and draft in a trace. Raises BadValueError."""
    for record in _records(path):
        args = record.get("args")
        if record.get("name") == "process_name" and isinstance(args, dict) and isinstance(args.get("target"), str):
            draft = args.get("draft")
            return args["target"], draft if isinstance(draft, str) else None
    raise BadValueError(f"{path} is not a trace that duo wrote, or it ends before the first event")


def _records(path: str | Path) -> Iterator[dict[str, Any]]:
    """The records of a trace, which is a list or (as viewers save it) an object; skips a truncated last record."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    head = re.match(r'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[', text)
    if head is None:
        raise BadValueError(f"{path} is not a trace: it does not begin with a list of events")
    decoder, separator, position = json.JSONDecoder(), re.compile(r"[\s,]*"), head.end()
    while True:
        skipped = separator.match(text, position)
        position = skipped.end() if skipped else position
        if position == len(text) or text[position] == "]":
            return
        if text[position] != "{":
            raise BadValueError(f"{path} is not a trace: its list contains something other than events")
        try:
            record, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            # The writer writes one record per line, so only the last line can be incomplete.
            if "\n" in text[position:]:
                raise BadValueError(f"{path} is damaged at character {position}") from None
            return
        yield record


def _event(record: dict[str, Any], path: str | Path) -> Event:
    args = record.get("args")
    values: dict[str, Any] = dict(args) if isinstance(args, dict) else {}
    start, duration, tid = record.get("ts"), record.get("dur"), record.get("tid")
    values.update(kind=record.get("name"), lane={1: "target", 2: "draft"}.get(tid) if type(tid) is int else None)
    values.update(t0_us=start, t1_us=start + duration if type(start) is int and type(duration) is int else None)
    for field in fields(Event):
        # Older traces lack some fields.
        value = values.setdefault(field.name, None if field.default is MISSING else field.default)
        if field.type is float and type(value) is int and abs(value) < 2**63:
            value = values[field.name] = float(value)  # a viewer that saves a trace writes 1.0 as 1
        if type(value) is not field.type or (isinstance(value, int) and abs(value) >= 2**63):
            raise BadValueError(f"{path} is damaged: an event has no valid {field.name}")
    return Event(**{field.name: values[field.name] for field in fields(Event)})


def overlap(events: Iterable[Event]) -> Overlap:
    """Busy times. Events may nest, overlap and have any order; waiting does not count as work."""
    events = list(events)
    if not events:
        return Overlap(0, 0, 0, 0)
    target, draft = busy(events, "target"), busy(events, "draft")
    wall_us = max(event.t1_us for event in events) - min(event.t0_us for event in events)
    return Overlap(wall_us, _length(target), _length(draft), _length(intersection(target, draft)))


def clip(events: Iterable[Event], t0_us: int, t1_us: int) -> list[Event]:
    """The events between two times; passes that extend beyond them are cut."""
    inside = (event for event in events if event.t0_us < t1_us and event.t1_us > t0_us)
    return [replace(event, t0_us=max(event.t0_us, t0_us), t1_us=min(event.t1_us, t1_us)) for event in inside]


def busy(events: Iterable[Event], lane: str) -> list[Span]:
    """The times at which a lane works, sorted and disjoint."""
    spans: list[Span] = []
    for t0, t1 in sorted((event.t0_us, event.t1_us) for event in events if event.lane == lane and event.kind != "wait"):
        if spans and t0 <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], t1))
        elif t1 > t0:
            spans.append((t0, t1))
    return spans


def intersection(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    spans, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        t0, t1 = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if t0 < t1:
            spans.append((t0, t1))
        i, j = (i + 1, j) if left[i][1] < right[j][1] else (i, j + 1)
    return spans


def _length(spans: Iterable[Span]) -> int:
    return sum(t1 - t0 for t0, t1 in spans)


def between(events: Sequence[Event], start_ms: float | None, end_ms: float | None) -> Span:
    """Converts times counted from the first event to times within the trace; None: the start or the end of the trace.

    Raises BadValueError: the part is empty.
    """
    for ms in (start_ms, end_ms):
        if ms is not None and not math.isfinite(ms * 1000):
            raise BadValueError(f"{ms} ms is not a time; give a finite number")
    origin, end = min(event.t0_us for event in events), max(event.t1_us for event in events)
    lo = origin if start_ms is None else max(origin, origin + round(start_ms * 1000))
    hi = end if end_ms is None else min(end, origin + round(end_ms * 1000))
    if lo > hi or (lo == hi and (start_ms, end_ms) != (None, None)):
        raise BadValueError(f"the requested part is empty; the trace goes from 0 to {(end - origin) / 1000:.1f} ms")
    return lo, hi


def window(events: Sequence[Event], start_ms: float | None, end_ms: float | None) -> Span:
    """The part to draw: without a start or an end, a part with about 30 verifications. Raises BadValueError."""
    lo, hi = between(events, start_ms, end_ms)
    passes = sorted({(e.t0_us, e.t1_us) for e in events if e.kind == "verify" and lo <= e.t0_us < hi})
    surplus = len(passes) - WINDOW_VERIFICATIONS
    if surplus <= 0 or (start_ms is not None and end_ms is not None):
        return lo, hi
    if start_ms is not None:
        return lo, passes[WINDOW_VERIFICATIONS - 1][1]
    if end_ms is not None:
        return passes[surplus][0], hi
    return passes[surplus // 2][0], passes[surplus // 2 + WINDOW_VERIFICATIONS - 1][1]
