"""Writes the figures to files: JSON with everything, CSV with a row for each arm and category."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.costs import acceptances, costs_of
from duo.benchmark.bench.measures import Spread, Summary, best_sync, summarise
from duo.benchmark.bench.quote import quote
from duo.benchmark.bench.record import AnswerRecord
from duo.benchmark.bench.report import notes_of
from duo.errors import BadValueError, DuoError


def check_writable(path: Path | None, what: str) -> None:
    """Checks a path before a long run. Raises BadValueError: its folder does not exist, or it is a folder."""
    if path is not None and (os.path.isdir(path) or not os.path.isdir(path.parent)):
        reason = "it is a folder" if os.path.isdir(path) else f"there is no folder {path.parent}"
        raise BadValueError(f"the {what} file {path} cannot be written ({reason}); choose another")


def _write(path: Path, text: str, what: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise DuoError(f"the {what} file {path} cannot be written ({e.strerror}); choose another") from None


def _arm(arm: Arm) -> dict[str, Any]:
    return {"arm": arm.name, "mode": arm.mode, "n_draft": arm.n_draft}


def as_json(
    records: Sequence[AnswerRecord],
    head: dict[str, Any] | None = None,
    notes: Iterable[str] = (),
    *,
    raw: bool = False,
    complete: bool = True,
) -> dict[str, Any]:
    """All figures as one JSON object. raw: include every record. complete: False if Ctrl-C ended the run early."""
    sync, costs = best_sync(records), costs_of(records)
    out: dict[str, Any] = {
        **(head or {}),
        "complete": complete,
        "quote": quote(records, head),
        "best_sync": None if sync is None else _arm(sync),
        "measured": {
            "pass_ms": costs.pass_ms,
            "step_ms": costs.step_ms,
            "c": costs.c,
            "acceptance_by_position": acceptances(records),
        },
        "summaries": [
            {**_arm(s.arm), **{k: v for k, v in asdict(s).items() if k != "arm"}} for s in summarise(records)
        ],
        "notes": [*notes_of(records, sync), *notes],
    }
    if raw:
        out["records"] = [
            {**_arm(r.arm), **{k: v for k, v in asdict(r).items() if k != "arm"}, "gaps_ms": r.gaps_ms} for r in records
        ]
    return out


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Raises DuoError if the file cannot be written."""
    _write(path, json.dumps(figures, indent=1) + "\n", "JSON")


def _row(s: Summary) -> dict[str, Any]:
    row: dict[str, Any] = _arm(s.arm)
    for f in fields(s):
        value = getattr(s, f.name)
        # Each spread always has three columns, so that all rows have the same columns.
        if f.name in _SPREADS:
            spread = value or Spread(*(float("nan"),) * 3)
            row |= {f.name: spread.median, f"{f.name}_low": spread.low, f"{f.name}_high": spread.high}
        elif f.name != "arm":
            row[f.name] = " ".join(f"{x:.4f}" for x in value) if isinstance(value, tuple) else value
    return {k: "" if v is None or v != v else v for k, v in row.items()}


_SPREADS = ("tokens_per_s", "to_plain", "to_best_sync", "ttft_ms")


def write_csv(path: Path, records: Sequence[AnswerRecord]) -> None:
    """Writes a row for each arm and category, `all` first. Empty cells were not measured. Raises DuoError."""
    rows = [_row(s) for s in summarise(records)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write(path, text.getvalue(), "CSV")
