"""All tables of README.md and benchmarks/README.md on one commit, by one command, with fewer prompts.

    make bench
    python -m benchmarks.run_all --minutes 35 [--only defaults,pair] [--out FILE] [--page FILE]

Each measurement is a step (steps.py): a script with the models that pair_files.py makes. Within a script the arms take
turns, so that a noisy moment affects all. What a step brings is written to the JSON file at once. Steps that the file
already has from the same commit and machine are kept, unless --only names them or other programs disturbed them; so a
run can be done in parts. Another commit begins a new file. The page (report_page.py) is written from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.about_machine import ROOT, about, commit, installed_differs
from benchmarks.pair_files import PairFiles
from benchmarks.report_page import page
from benchmarks.run_real import MODELS
from benchmarks.steps import STEPS, WHOLE_MINUTES, Scale, Step

from duo.benchmark.bench.head import command_of
from duo.models.demo import demo_pair
from duo.support.other_load import QUIET_CORES, Moment, other_cores

PATIENCE = 3.0  # a step that takes so many times as long as it should is stopped
SPARE_S = 60.0


def fresh_cache(work: Path) -> Path:
    """A cache without what earlier runs learned of a pair. The race of the kernels is kept: it is no part of a text."""
    (work / "cache/duo/pairs.json").unlink(missing_ok=True)
    return work / "cache"


def run_step(step: Step, models: PairFiles, scale: Scale, log: Path) -> dict[str, Any]:
    """What the step brought; `state` says whether it ended."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        args = step.command(models, scale, out)
        limit = PATIENCE * step.seconds * max(scale.factor, 0.5) + SPARE_S
        before, children = Moment.now(), children_s()
        with log.open("w") as errors:
            child = subprocess.Popen(
                [sys.executable, *args], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                env={**os.environ, "XDG_CACHE_HOME": str(fresh_cache(models.folder))}, start_new_session=True,
            )  # fmt: skip
            try:
                printed, _ = child.communicate(timeout=limit)
            except BaseException as e:
                os.killpg(child.pid, 9)  # with what the script has started
                child.wait()
                if not isinstance(e, subprocess.TimeoutExpired):
                    raise
                return {"state": f"stopped after {limit:.0f} s", "seconds": limit, "command": command_of(args)}
        after = Moment.now()
        found: dict[str, Any] = {
            "state": "done" if child.returncode == 0 and out.exists() else f"failed with exit code {child.returncode}",
            "seconds": round(after.wall - before.wall, 1),
            "command": command_of(["python", *(a.replace(str(models.folder), "build/bench") for a in args)][:-2]),
        }
        if found["state"] != "done":
            print(log.read_text()[-600:], file=sys.stderr)
            return found
        cores = other_cores(before, after)
        if cores is not None:  # the step's own processes count as others there
            cores = round(max(0.0, cores - (children_s() - children) / (after.wall - before.wall)), 2)
        found |= {"other_cores": cores}
        return found | {"printed": printed, "data": json.loads(out.read_text("utf-8"))}


def children_s() -> float:
    """CPU time of this process's children that have ended."""
    t = os.times()
    return t.children_user + t.children_system


def begun(path: Path, work: Path) -> dict[str, Any]:
    """The report to add to: that of this commit on this machine, or a new one."""
    now, machine = commit(), about(work)
    if path.exists():
        old: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if (old["commit"], old["machine"]["processor"]) == (now, machine["processor"]):
            read, before = machine["read_gb_per_s"], old["machine"]["read_gb_per_s"]
            old["machine"] = machine | {"read_gb_per_s": {n: max(v, before.get(n, 0.0)) for n, v in read.items()}}
            return old
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return {"commit": now, "date": date, "machine": machine, "steps": {}}


def without_folders(text: str) -> str:
    """Without the folders of this machine."""
    for folder, name in ((demo_pair()[0].parent, "src/duo/data"), (ROOT, ".")):
        text = text.replace(f"{folder}/", "" if name == "." else f"{name}/")
    return text


def is_good(step: Step, found: dict[str, Any]) -> bool:
    """Whether it need not be measured again."""
    return found["state"] == "done" and not (step.timed and (found["other_cores"] or 0.0) > QUIET_CORES)


def without(step: Step) -> list[str]:
    """The real models that it needs and that are not there."""
    return [name for name in step.needs if not MODELS[name].is_there()]


def write(report: dict[str, Any], new: dict[str, Any], out: Path, at: Path) -> None:
    """Adds steps to the report and writes it, with what another run has written meanwhile."""
    there = json.loads(out.read_text("utf-8")) if out.exists() else {}
    steps = report["steps"] | (there["steps"] if there.get("commit") == report["commit"] else {}) | new
    report["steps"] = {s.name: steps[s.name] for s in STEPS if s.name in steps}
    text = without_folders(json.dumps(report, indent=1))
    out.write_text(text + "\n", "utf-8")
    at.write_text(page(json.loads(text)), "utf-8")


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=WHOLE_MINUTES, help="for all steps; fewer: fewer prompts")
    p.add_argument("--only", metavar="NAME,NAME", help=f"of {', '.join(s.name for s in STEPS)}, or models")
    p.add_argument("--work", type=Path, default=ROOT / "build/bench", help="folder for the model files")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/report.json")
    p.add_argument("--page", type=Path, default=ROOT / "benchmarks/report.md")
    args = p.parse_args()
    names = [s.name for s in STEPS] if args.only is None else args.only.split(",")
    if unknown := set(names) - {s.name for s in STEPS} - {"models"}:
        p.error(f"there is no step {', '.join(sorted(unknown))}")
    if differing := installed_differs():
        sys.exit(f"the installed duo is not this tree's ({differing[0]} differs); install it again: make .venv/duo")
    models = PairFiles(args.work.resolve())
    for name in models.made(of_kernels="models" in names or any(n.startswith("kernels") for n in names)):
        print(f"making {name}", file=sys.stderr, flush=True)
    if names == ["models"]:
        return 0
    report = begun(args.out, args.work)
    kept = report["steps"] if args.only is None else {}
    todo = [s for s in STEPS if s.name in names and not (s.name in kept and is_good(s, kept[s.name]))]
    for step in [s for s in todo if without(s)]:
        print(f"{step.name} is left out: there is no {without(step)[0]}; run make models", file=sys.stderr)
        todo.remove(step)
    scale, expected, began = Scale(args.minutes / WHOLE_MINUTES), 0.0, time.monotonic()
    all_s = sum(s.seconds for s in todo) * scale.factor
    for i, step in enumerate(todo, 1):
        # Steps so far took this much longer or less than planned.
        pace = (time.monotonic() - began) / expected if expected else 1.0
        left = pace * (all_s - expected) / 60
        print(
            f"[{i}/{len(todo)}] {step.name}: {step.title}; about {left:.0f} minutes left", file=sys.stderr, flush=True
        )
        found = run_step(step, models, scale, args.work / f"{step.name}.log")
        expected += step.seconds * scale.factor
        write(report, {step.name: found}, args.out, args.page)
        print(f"    {found['state']}, {found['seconds']:.0f} s", file=sys.stderr, flush=True)
    write(report, {}, args.out, args.page)
    print(f"wrote {args.page} and {args.out}", file=sys.stderr)
    return int(any(report["steps"][s.name]["state"] != "done" for s in todo))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
