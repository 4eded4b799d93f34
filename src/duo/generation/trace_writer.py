"""Writes what the two models do, and when, as a Chrome trace while they run."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duo import _core

LANES = ("target", "draft")  # top to bottom; the thread ids in the file are 1 and 2


@dataclass(frozen=True)
class Event:
    """One pass of a model, or a wait of a worker."""

    kind: str  # "prompt" | "verify" | "draft" | "wait"
    lane: str  # "target" | "draft"
    t0_us: int  # start, microseconds on the engine's clock
    t1_us: int  # end, on the same clock
    slot: int
    n_rows: int  # rows in the pass
    n_accepted: int  # verify: drafted tokens accepted
    n_drafted: int  # verify: drafted tokens in the pass; draft: nodes made
    hit: bool  # verify: whether the last committed token was already a node of the tree
    depth: int  # draft: depth of the step below the root; verify: levels drafted
    n_branch: int = 0  # verify: most nodes that the draft may expand in a step
    expected: float = 0.0  # verify: tokens that the planner expected from the pass
    stance: str = ""  # verify: "ahead", "by turn", "rest"


def take_events(engine: "_core.Engine") -> list[Event]:
    """What the workers have recorded since the last call: the target's events, then the draft's."""
    return [
        Event(
            kind=kind, lane=lane, t0_us=t0, t1_us=t1, slot=slot, n_rows=rows,
            n_accepted=accepted, n_drafted=drafted, hit=hit, depth=depth,
            n_branch=branch, expected=expected, stance=stance if kind == "verify" else "",
        )
        for kind, lane, t0, t1, slot, rows, accepted, drafted, hit, depth, branch, expected, stance
        in engine.take_trace()
    ]  # fmt: skip


class TraceWriter(AbstractContextManager["TraceWriter"]):
    """Writes events as they arrive. A program that is killed leaves a file that can still be opened.

    The file is a bare JSON list. Viewers accept such a list without its end, but refuse an unfinished
    {"traceEvents": [...]}. So the name of the process holds what that form keeps in "otherData".
    """

    def __init__(self, path: str | Path, *, target: str, draft: str | None) -> None:
        self._file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115 - closed by close()
        self._has_draft = draft is not None
        self._separator = "[\n"
        name = f"duo: target {target}, " + (f"draft {draft}" if draft is not None else "no draft")
        records = [_metadata("process_name", 0, {"name": name, "target": target, "draft": draft})]
        for tid, lane in enumerate(LANES, 1):
            if lane == "target" or self._has_draft:
                records.append(_metadata("thread_name", tid, {"name": lane}))
                records.append(_metadata("thread_sort_index", tid, {"sort_index": tid}))
        try:
            self._write(records)
        except OSError:
            with suppress(OSError):
                self._file.close()
            raise

    def add(self, events: Iterable[Event]) -> None:
        """Appends events, in any order, and hands them to the operating system at once."""
        records: list[dict[str, Any]] = []
        for event in events:
            place = {"cat": "duo", "pid": 1, "tid": LANES.index(event.lane) + 1}
            args = {key: value for key, value in vars(event).items() if key not in ("kind", "lane", "t0_us", "t1_us")}
            duration = event.t1_us - event.t0_us
            records.append({"name": event.kind, "ph": "X", **place, "ts": event.t0_us, "dur": duration, "args": args})
            if event.kind == "verify" and self._has_draft:
                outcome = "hit" if event.hit else "miss"
                records.append({"name": outcome, "ph": "i", "s": "t", **place, "ts": event.t1_us})
        self._write(records)

    def network(self, t_us: int, figures: dict[str, Any]) -> None:
        """Figures of the network up to a time. Viewers draw them as curves."""
        values = {name.removeprefix("network_"): value for name, value in figures.items()}
        self._write([{"name": "network", "ph": "C", "cat": "duo", "pid": 1, "ts": t_us, "args": values}])

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                self._file.write("\n]")  # no newline: a viewer may take it for a second document

    def _write(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            self._file.write(self._separator + json.dumps(record, separators=(",", ":")))
            self._separator = ",\n"
        self._file.flush()

    def __exit__(self, *error: object) -> None:
        self.close()


def _metadata(name: str, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": 1, "tid": tid, "args": args}
