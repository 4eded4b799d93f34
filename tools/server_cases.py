"""Cases of llama-server's tests: what became of each, and why one may fail against duo."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

KINDS = {"model": "left out because of the model", "network": "need a network", "choice": "duo's choice"}
REFERENCE = "reference"
RUNS = {REFERENCE: "llama-server", "alone": "duo", "draft": "duo with a draft"}


@dataclass(frozen=True)
class Case:
    file: str
    name: str  # with its parameters
    run: str  # key of RUNS
    outcome: str  # passed, failed, skipped
    message: str

    @property
    def key(self) -> str:
        return f"{self.file}::{self.name}"

    @property
    def key_of_run(self) -> tuple[str, str]:
        return self.key, self.run


def read_cases(report: Path, file: str, *, run: str) -> list[Case]:
    """Of a report that pytest wrote with --junitxml."""
    found = []
    for case in ET.parse(report).getroot().iter("testcase"):
        bad = next((e for tag in ("failure", "error") for e in case.findall(tag)), None)
        skipped = case.find("skipped")
        outcome = "failed" if bad is not None else "skipped" if skipped is not None else "passed"
        element = bad if bad is not None else skipped
        message = "" if element is None else (element.get("message") or element.text or "").splitlines()[0][:200]
        found.append(Case(file, case.get("name") or "", run, outcome, message))
    return found


@dataclass(frozen=True)
class Reasons:
    """Why cases may fail, and lines of tests that cannot hold: {"cases": [...], "lines": [...]}, each of them
    {"pattern": of file::name or of a line of a file, "file": of lines, "kind": key of KINDS, "why": a sentence}."""

    known: tuple[tuple[re.Pattern[str], str, str], ...]
    lines: tuple[tuple[str, re.Pattern[str], str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Reasons:
        found = json.loads(path.read_text("utf-8"))
        return cls(
            tuple((re.compile(r["pattern"]), r["kind"], r["why"]) for r in found["cases"]),
            tuple((r["file"], re.compile(r["pattern"]), r["kind"], r["why"]) for r in found["lines"]),
        )

    def without_lines(self, file: str, text: str, run: str) -> str:
        """A test file in which the lines that cannot hold do nothing; llama-server has to meet what duo does not by
        choice. Raises SystemExit: there is no such line."""
        for name, pattern, kind, why in self.lines:
            if name in (file, "*") and (kind != "choice" or run != REFERENCE):
                text, n = re.subn(rf"(?m)^( +)(?=\S)({pattern.pattern})$", rf"\1pass  # left out: {why}", text)
                if not n and name == file:
                    raise SystemExit(f"{file} has no line {pattern.pattern}; correct the file of reasons")
        return text

    def found(self, case: Case) -> tuple[str, str] | None:
        """Kind and sentence."""
        return next(((kind, why) for pattern, kind, why in self.known if pattern.fullmatch(case.key)), None)

    def of(self, case: Case) -> str:
        found = self.found(case)
        return "" if found is None else f"{KINDS[found[0]]}: {found[1]}"


def fails_there(cases: list[Case]) -> set[str]:
    """The keys of cases that fail with llama-server."""
    return {c.key for c in cases if c.run == REFERENCE and c.outcome == "failed"}


def fails_here(cases: list[Case]) -> list[Case]:
    """Cases that fail with duo, once each, and do not with llama-server (or were not run there)."""
    there = fails_there(cases)
    failed = {c.key: c for c in cases if c.outcome == "failed" and c.run != REFERENCE and c.key not in there}
    return list(failed.values())


def table(cases: list[Case], reasons: Reasons) -> str:
    """Markdown: a row for each file."""
    head = ["file", "cases", "skipped", *RUNS.values(), "fails there, too", *KINDS, "other"]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    total = [0] * (len(head) - 1)
    for file in sorted({c.file for c in cases}):
        mine = [c for c in cases if c.file == file]
        here, there = fails_here(mine), fails_there(mine)
        kinds = [(reasons.found(c) or ("other", ""))[0] for c in here]
        passed = [len([c for c in mine if c.outcome == "passed" and c.run == run]) for run in RUNS]
        numbers = [
            len({c.key for c in mine}),
            len({c.key for c in mine if c.outcome == "skipped"}),
            *passed,
            len({c.key for c in mine if c.outcome == "failed" and c.run != REFERENCE and c.key in there}),
            *(kinds.count(kind) for kind in (*KINDS, "other")),
        ]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        was_run = {RUNS[c.run] for c in mine}
        shown = ["not run" if name in RUNS.values() and name not in was_run else str(n)
                 for name, n in zip(head[1:], numbers, strict=True)]  # fmt: skip
        rows.append(f"| `{file}` | {' | '.join(shown)} |")
    return "\n".join([*rows, f"| all | {' | '.join(map(str, total))} |"])


def explained(cases: list[Case], reasons: Reasons) -> str:
    """Markdown: a row for each reason why cases fail with duo and not with llama-server, with their number."""
    found: dict[tuple[str, str], set[str]] = {}
    for c in fails_here(cases):
        if (reason := reasons.found(c)) is not None:
            found.setdefault(reason, set()).add(c.key)
    rows = [f"| {why} | {KINDS[kind]} | {len(keys)} |" for (kind, why), keys in sorted(found.items())]
    return "\n".join(["| why | kind | cases |", "|---|---|---|", *rows])
