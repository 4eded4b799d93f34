"""What the search for a split of the cores brings, where target and draft work at once on the same CPU.

    python -m benchmarks.measure_splits --target T.gguf --draft D.gguf [--questions 6] [-n 128] [--rounds 3]

The ways: without a draft; turns; async with the likely split alone; async with the search (the default). Each has a
process of its own in each round, so that it learns from its own texts only, and writes the same texts, greedy. It needs
four cores or more: with fewer there is only one split.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duo
from duo.benchmark.bench.head import command_of, machine
from duo.placement import place
from duo.placement.cpus import usable_cores

WAYS = ("alone", "turns", "likely split", "search")
MODES = {"alone": "plain", "turns": "sync"}
PROMPTS = Path(__file__).parent / "prompts/completion_dev.jsonl"


def write(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each text, in this process."""
    every = place._splits
    if args.way == "likely split":
        place._splits = (
            lambda cores, target, draft, share: [  # type: ignore[assignment]
                s for s in every(cores, target, draft, share) if s[1] >= place._team(draft, share)
            ][:1]
        )
    lines = PROMPTS.read_text("utf-8").splitlines()
    prompts = [json.loads(line)["turns"][0] for line in lines][: args.questions]
    draft = None if args.way == "alone" else args.draft
    with duo.Duo(args.target, draft, n_ctx=2048, device="none", device_draft="none") as d:
        mode = MODES.get(args.way, "async")
        d.generate(prompts[0], max_tokens=8, temperature=0, mode=mode)
        seconds, texts = [], []
        for prompt in prompts:
            begin = time.monotonic()
            texts.append(d.generate(prompt, max_tokens=args.n, temperature=0, mode=mode, ignore_eos=True).text)
            seconds.append(time.monotonic() - begin)
        return {"seconds": seconds, "texts": texts, "splits": d.placed.splits, "first": d.placed.split}


def child(args: argparse.Namespace, way: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.measure_splits", *sys.argv[1:], "--way", way]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | {"DUO_PROFILES": "off"})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--questions", type=int, default=6)
    p.add_argument("-n", type=int, default=128)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out", type=Path)
    p.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.way:
        print(json.dumps(write(args)))
        return
    if usable_cores() < 4:
        sys.exit("there is only one split of fewer than four cores; run it on a machine with more")
    rounds = [{way: child(args, way) for way in WAYS} for _ in range(args.rounds)]
    texts = [r[way].pop("texts") for r in rounds for way in WAYS]
    last = rounds[-1]["search"]
    print(f"{usable_cores()} cores, splits {last['splits']}, likely: {last['splits'][last['first']]}")
    print(f"texts equal: {all(t == texts[0] for t in texts)}\n\n| way | tokens/s | to no draft | to the likely split |")
    print("|---|---:|---:|---:|")
    speed = {way: args.n / statistics.median(s for r in rounds for s in r[way]["seconds"]) for way in WAYS}
    for way in WAYS:
        ratios = [speed[way] / speed[base] for base in ("alone", "likely split")]
        print(f"| {way} | {speed[way]:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    if args.out:
        head = {"machine": machine(), "command": command_of(sys.argv), "cores": usable_cores()}
        args.out.write_text(json.dumps(head | {"n": args.n, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
