"""One pair with two installations of duo, side by side: another version, or a change that may be worth it.

    python benchmarks/run_installs.py --install before=OLD/bin/python --install after=NEW/bin/python \
        --target big.gguf --draft small.gguf --pinned --temps 0,0.8 --sync 1,2

Each installation has a process of its own, in which both models stay loaded. For each temperature all arms write each
prompt before the next one begins, in a rotating order: async with default options in every installation, and plain and
sync at some lengths in the last one. The script reports the median of tokens/s after the first token, the median of the
ratios to the first installation and to the best sync on the same prompt in the same round, and the share of passes that
found what follows prepared. Texts that differ between arms are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PINNED = {"cpu_range": "0-0", "cpu_range_draft": "1-1", "n_threads": 1, "n_threads_draft": 1}


def serve() -> None:
    """In the child: a job a line, a result a line."""
    import duo

    first = json.loads(sys.stdin.readline())
    with duo.Duo(first["target"], first["draft"], n_ctx=512, **first["engine"]) as d:
        for line in sys.stdin:
            job = json.loads(line)
            text = d.generate(job["prompt"], ignore_eos=True, seed=1, **job["options"]).text
            print(json.dumps({"text": text, "timings": d.timings}), flush=True)


class Child:
    """An installation's process."""

    def __init__(self, python: str, args: argparse.Namespace) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        environment = os.environ | {"DUO_PROFILES": "off"}
        self.process = subprocess.Popen([python, __file__, "--child"], env=environment, **pipes)
        self._tell({"target": args.target, "draft": args.draft, "engine": PINNED if args.pinned else {}})

    def _tell(self, what: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def write(self, prompt: str, options: dict[str, Any]) -> dict[str, Any]:
        self._tell({"prompt": prompt, "options": options})
        assert self.process.stdout is not None
        result: dict[str, Any] = json.loads(self.process.stdout.readline())
        return result


@dataclass
class Arm:
    name: str
    child: Child
    options: dict[str, Any]
    speed: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    hits: int = 0
    passes: int = 0
    tokens: int = 0

    def write(self, prompt: str, temperature: float, n: int) -> None:
        said = self.child.write(prompt, {**self.options, "temperature": temperature, "max_tokens": n})
        t = said["timings"]
        self.speed.append(t["predicted_per_second"])
        self.texts.append(said["text"])
        self.hits += t.get("draft_hit_n", 0)  # plain texts have none
        self.passes += t.get("target_passes_n", t["predicted_n"])
        self.tokens += t["predicted_n"]


def ratios(a: Arm, b: Arm) -> list[float]:
    return [x / y for x, y in zip(a.speed, b.speed, strict=True)]


def row(arm: Arm, first: Arm, best: Arm, temperature: float) -> dict[str, Any]:
    return {
        "temperature": temperature,
        "arm": arm.name,
        "tokens_per_s": statistics.median(arm.speed),
        "to_first": statistics.median(ratios(arm, first)),
        "to_best_sync": statistics.median(ratios(arm, best)),
        "hits": arm.hits / max(1, arm.passes),
        "tokens_per_pass": arm.tokens / max(1, arm.passes),
        "n_texts": len(arm.texts),
        "n_other_texts": sum(x != y for x, y in zip(arm.texts, first.texts, strict=True)),
    }


def measure(
    children: dict[str, Child], prompts: list[str], temperature: float, args: argparse.Namespace
) -> list[dict[str, Any]]:
    arms = [Arm(f"async, {name}", child, {"mode": "async"}) for name, child in children.items()]
    last = list(children.values())[-1]
    arms += [Arm(f"sync {k}", last, {"mode": "sync", "n_draft": int(k)}) for k in args.sync.split(",")]
    if args.plain:
        arms.append(Arm("plain", last, {"mode": "plain"}))
    for arm in arms:  # what passes and steps cost is found out here
        arm.child.write(prompts[-1], {**arm.options, "temperature": temperature, "max_tokens": args.n // 2})
    for i, prompt in enumerate(prompts * args.rounds):
        start = i % len(arms)
        for arm in arms[start:] + arms[:start]:
            arm.write(prompt, temperature, args.n)
    sync = [arm for arm in arms if arm.name.startswith("sync")]
    best = max(sync, key=lambda arm: statistics.median(arm.speed))
    return [row(arm, arms[0], best, temperature) for arm in arms]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--install", action="append", default=[], metavar="NAME=PYTHON")
    p.add_argument("--target")
    p.add_argument("--draft")
    p.add_argument("--pinned", action="store_true", help="one core for each model")
    p.add_argument("--temps", default="0,0.8")
    p.add_argument("--sync", default="1,2")
    p.add_argument("--plain", action="store_true")
    p.add_argument("--prompts", default=str(Path(__file__).parent / "prompts/completion_dev.jsonl"))
    p.add_argument("--questions", type=int, default=6, help="prompts, spread over the file")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("-n", type=int, default=64, help="tokens")
    p.add_argument("--out", type=Path, help="JSON")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        serve()
        return
    lines = Path(args.prompts).read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines[:: max(1, len(lines) // args.questions)]][: args.questions]
    children = {}
    for pair in args.install:
        name, _, python = pair.partition("=")
        children[name] = Child(python, args)
    print("| temperature | arm | tokens/s | to the first | to best sync | hits | tokens a pass | other texts |")
    print("|" + "---|" * 8)
    rows: list[dict[str, Any]] = []
    for temperature in args.temps.split(","):
        for r in measure(children, prompts, float(temperature), args):
            rows.append(r)
            print(
                f"| {r['temperature']} | {r['arm']} | {r['tokens_per_s']:.1f} | {r['to_first']:.3f} "
                f"| {r['to_best_sync']:.3f} | {r['hits']:.2f} | {r['tokens_per_pass']:.2f} "
                f"| {r['n_other_texts']} of {r['n_texts']} |",
                flush=True,
            )
    for child in children.values():
        child.process.communicate()
    if args.out:
        from duo.benchmark.bench.head import command_of, machine, settings_of

        head = {"machine": machine(), "command": command_of(sys.argv), "options": settings_of(vars(args))}
        args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
