"""duo as a new user starts it: nothing pinned, no options, each mode in a fresh process.

    python benchmarks/run_defaults.py --target big.gguf --draft 0.01=small.gguf --draft 0.2=medium.gguf \
        --cpus 0 --cpus 0-1

A cell is a set of CPUs (set with `taskset`), a choice of kernels and a draft. In each cell and round every arm starts
its own process and writes the same two texts: plain alone (no draft loaded), plain with the draft loaded, sync at
several lengths, async (the default), and async again with what the previous process learned. The script reports
tokens/s from the first token to the 64th and to the last of the first text, and over the second text, each relative to
the best of {plain alone, sync at its best length}, and the time to first token relative to that of plain alone. The
best is the arm with the highest median over all rounds. It is compared with the other arm round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SPANS = ("first 64", "first text", "second text")
KERNELS_FILE = "kernels.json"
FIGURES = ("target_passes_n", "passes_ahead_n", "passes_by_turn_n", "passes_at_rest_n", "draft_n", "draft_n_accepted",
           "slowdown", "pass_ms", "step_ms")  # fmt: skip


@dataclass
class Arm:
    name: str
    options: dict[str, Any]
    with_draft: bool = True
    warm: bool = False  # keeps the saved measurements; otherwise it starts without any
    speeds: dict[str, list[float]] = field(default_factory=lambda: {s: [] for s in SPANS})  # tokens/s, by round
    first_ms: list[float] = field(default_factory=list)  # time to first token of the first text
    timings: dict[str, Any] = field(default_factory=dict)  # of the last text


def write(job: dict[str, Any]) -> dict[str, Any]:
    """In the child: writes both texts, with the time of each token in microseconds after the call."""
    import time

    import duo

    out: dict[str, Any] = {"texts": []}
    with duo.Duo(job["target"], job["draft"], **job["engine"], **job["options"]) as d:
        for prompt in job["prompts"]:
            t0 = time.perf_counter()
            times = []
            for chunk in d.stream(prompt, max_tokens=job["n"], temperature=0, ignore_eos=True):
                if chunk.token is not None:
                    times.append(time.perf_counter() - t0)
            out["texts"].append(times)
        out["timings"] = {k: v for k, v in d.timings.items() if k in FIGURES}
    return out


def speed(times: list[float], first: int, last: int) -> float:
    """Tokens/s from the time of token `first` to that of token `last`, both counted from 0."""
    return (last - first) / (times[last] - times[first])


def run(arm: Arm, job: dict[str, Any], cpus: str, cache: Path, kernels_cache: Path) -> None:
    job = {**job, "draft": job["draft"] if arm.with_draft else None, "options": arm.options}
    folder = cache / "duo"
    folder.mkdir(parents=True, exist_ok=True)
    if not arm.warm:
        for old in folder.iterdir():
            old.unlink()
    if kernels_cache.exists():  # the race of the kernels is not part of the text
        (folder / KERNELS_FILE).write_bytes(kernels_cache.read_bytes())
    command = ["taskset", "-c", cpus, sys.executable, __file__, "--child", json.dumps(job)]
    done = subprocess.run(
        command, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True, timeout=900
    )
    if done.returncode != 0:
        raise SystemExit(f"{arm.name} failed: {done.stderr[-2000:]}")
    if (folder / KERNELS_FILE).exists():
        kernels_cache.write_bytes((folder / KERNELS_FILE).read_bytes())
    got = json.loads(done.stdout.splitlines()[-1])
    one, two = got["texts"]
    arm.speeds["first 64"].append(speed(one, 0, min(63, len(one) - 1)))
    arm.speeds["first text"].append(speed(one, 0, len(one) - 1))
    arm.speeds["second text"].append(speed(two, 0, len(two) - 1))
    arm.first_ms.append(1e3 * one[0])
    arm.timings = got["timings"]


def arms_for(lengths: list[int], *, warm: bool) -> list[Arm]:
    arms = [
        Arm("plain alone", {"mode": "plain"}, with_draft=False),
        Arm("plain", {"mode": "plain"}),
        *(Arm(f"sync {k}", {"mode": "sync", "n_draft": k}) for k in lengths),
        Arm("async", {}),
    ]
    return [*arms, Arm("async, second run", {}, warm=True)] if warm else arms


def paired(arm: Arm, others: list[Arm], span: str) -> float:
    """Median over rounds of the ratio to the best other arm, which is the one with the highest median."""
    best = max(others, key=lambda o: statistics.median(o.speeds[span]))
    return statistics.median(a / b for a, b in zip(arm.speeds[span], best.speeds[span], strict=True))


def report(cell: dict[str, Any], arms: list[Arm]) -> dict[str, Any]:
    alone = arms[0]
    rivals = [a for a in arms if a.name == "plain alone" or a.name.startswith("sync")]
    print(f"\n{cell['cpus']} | {cell['kernels']} | c = {cell['c']}")
    print("| arm | first 64 | first text | second text | first token, ms |\n|---|---|---|---|---|")
    for a in arms:
        columns = [f"{statistics.median(a.speeds[s]):.1f}" for s in SPANS]
        print(f"| {a.name} | {' | '.join(columns)} | {statistics.median(a.first_ms):.0f} |")
    out: dict[str, Any] = {"cell": cell, "arms": {a.name: asdict(a) for a in arms}, "ratios": {}}
    for a in arms:
        to, what = (rivals, "best") if a.name.startswith("async") else ([alone], "plain alone")
        if a is alone or a.name.startswith("sync"):
            continue
        ratios = {s: paired(a, to, s) for s in SPANS}
        first = statistics.median(x / y for x, y in zip(a.first_ms, alone.first_ms, strict=True))
        out["ratios"][a.name] = {**ratios, "first token": first}
        words = ", ".join(f"{s} {r:.3f}" for s, r in ratios.items())
        print(f"{a.name} / {what}: {words}; time to first token / plain alone {first:.2f}", flush=True)
    return out


def measure(
    job: dict[str, Any], cell: dict[str, str], args: argparse.Namespace, prompts: list[str], folder: Path
) -> dict[str, Any]:
    """Runs all arms in turn, in a rotating order. The warm run follows the cold run whose measurements it reads."""
    arms = arms_for([int(k) for k in args.lengths.split(",")], warm=args.warm)
    cache, known = folder / "cache", folder / f"kernels-{cell['cpus']}.json"
    cold = [a for a in arms if not a.warm]
    for i in range(args.rounds):
        texts = {"prompts": [prompts[(2 * i + j) % len(prompts)] for j in range(2)]}
        for a in [*cold[i % len(cold) :], *cold[: i % len(cold)]]:
            run(a, {**job, **texts}, cell["cpus"], cache, known)
            if a.name == "async" and args.warm:
                run(arms[-1], {**job, **texts}, cell["cpus"], cache, known)
    return report(cell, arms)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target")
    p.add_argument("--draft", action="append", default=[], metavar="C=FILE", help="a draft, and its step / pass time")
    p.add_argument("--cpus", action="append", metavar="LIST", help="as for taskset -c; may be repeated")
    p.add_argument("--kernels", default="auto", help="--cpu-kernels: auto, duo, stock, or several")
    p.add_argument("--lengths", default="1,2,4,6", help="draft lengths of sync")
    p.add_argument("--prompts", default=str(Path(__file__).parent / "prompts/completion_dev.jsonl"))
    p.add_argument("-n", type=int, default=256, help="tokens per text")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--warm", action="store_true", help="also async with what the previous run learned")
    p.add_argument("--out", type=Path, help="JSON")
    p.add_argument("--child", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        print(json.dumps(write(json.loads(args.child))))
        return
    if not args.target or not args.draft:
        p.error("--target and --draft are needed")

    from duo.benchmark.bench.head import command_of, machine, settings_of

    lines = Path(args.prompts).read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines]
    drafts = [f"{spec.partition('=')[0]}={Path(spec.partition('=')[2]).name}" for spec in args.draft]
    typed = [drafts[args.draft.index(word)] if word in args.draft else word for word in sys.argv]
    settings = settings_of({**vars(args), "draft": ",".join(drafts)})
    head = {"machine": machine(), "command": command_of(typed), **settings}
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for cpus in args.cpus or [",".join(map(str, sorted(os.sched_getaffinity(0))))]:
            for kernels in args.kernels.split(","):
                for spec in args.draft:
                    c, _, draft = spec.partition("=")
                    job = {"target": args.target, "draft": draft, "n": args.n, "engine": {"cpu_kernels": kernels}}
                    cells.append(measure(job, {"cpus": cpus, "kernels": kernels, "c": c}, args, prompts, Path(folder)))
                    if args.out:
                        args.out.write_text(json.dumps({"head": head, "cells": cells}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
