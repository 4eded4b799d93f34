"""What a run has shown, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.torture.parent import HEADERS, Parent, Tally

from duo.benchmark.bench.head import command_of, machine


def table(tallies: Mapping[str, Tally]) -> str:
    rows = [("kind", "faults", "whole texts, equal", "cut off, right so far", "tokens", "sentences", "seconds")]
    for name, t in sorted(tallies.items()):
        s = t.seen
        rows.append((name, str(t.done), str(s.texts), str(s.cut), str(s.tokens), str(s.sentences), f"{t.seconds:.0f}"))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]) for r in rows
    ]
    for name, t in sorted(tallies.items()):
        if t.seen.counts:
            lines.append(f"{name}: " + ", ".join(f"{n} {what}" for what, n in sorted(t.seen.counts.items())))
    return "\n".join(lines)


def commit() -> str:
    """Of this checkout; empty if it is none."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def earlier(path: Path | None, seed: int) -> dict[str, Any]:
    """The results that a run adds to; empty: none. Raises SystemExit: they are of another seed."""
    if path is None or not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if found["seed"] != seed:
        raise SystemExit(f"{path} has the results of seed {found['seed']}; go on with it, or choose another file")
    return found


def sum_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The results of two runs, of which the second went on with the first."""
    if not before:
        return dict(now)
    kinds = dict(before["kinds"])
    for name, k in now["kinds"].items():
        old = kinds.get(name, {})
        counts = dict(old.get("counts", {}))
        for what, n in k["counts"].items():
            counts[what] = counts.get(what, 0) + n
        kinds[name] = {**{x: old.get(x, 0) + n for x, n in k.items() if x != "counts"}, "counts": counts}
    commits = list(dict.fromkeys([*before.get("commits", [before["commit"]]), now["commit"]]))
    added = {x: before[x] + now[x] for x in ("minutes", "faults", "headers", "failures")}
    return {
        **now,
        **added,
        "kinds": kinds,
        "commits": commits,
        "runs": [*before.get("runs", [before["date"]]), now["date"]],
    }


def as_json(
    parent: Parent, argv: Sequence[str], a: argparse.Namespace, minutes: float, date: str, notes: Sequence[str]
) -> dict[str, Any]:
    headers = parent.tallies[HEADERS].done if HEADERS in parent.tallies else 0
    return {
        "machine": machine(),
        "command": command_of(["benchmarks.torture", *argv[1:]]),
        "date": date,
        "commit": commit(),
        "seed": a.seed,
        "workers": a.workers,
        "minutes": round(minutes, 1),
        "faults": parent.n_done - headers,
        "headers": headers,
        "kinds": {
            name: {"faults": t.done, **asdict(t.seen), "seconds": round(t.seconds)}
            for name, t in sorted(parent.tallies.items())
        },
        "next": parent.next,
        "not_run": list(notes),
        "failures": [{"number": f.number, "kind": f.kind, "what": f.what} for f in parent.failures],
    }
