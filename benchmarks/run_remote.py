"""The cost of a network: plain, draft in process, draft host on loopback and behind cables, side by side in one run.

    python benchmarks/run_remote.py --target big.gguf --draft small.gguf --cores 0 --core-draft 1 --rtt 0,50

Round trips above 0 need root: the host is in a network namespace behind a cable that delays packets
(tests/far_machine.py). Every arm writes each prompt before the next one begins, in a rotating order. The script reports
medians over prompts and rounds, and medians of the ratios to plain and to the draft in process for the same prompt and
round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from far_machine import far_machine, why_not

import duo
from duo.benchmark.bench.head import command_of, head_of, settings_of

os.environ["DUO_PROFILES"] = "off"  # each run starts without saved measurements


@dataclass
class Arm:
    name: str
    duo: duo.Duo
    options: dict[str, Any] = field(default_factory=dict)
    wire: Callable[[], int] | None = None  # bytes that have crossed the cable
    speed: list[float] = field(default_factory=list)
    texts: list[tuple[int, ...]] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)

    def write(self, prompt: str, n: int, temperature: float) -> None:
        before = self.wire() if self.wire else 0
        r = self.duo.generate(
            prompt, max_tokens=n, temperature=temperature, seed=1, ignore_eos=True, **{"mode": "async", **self.options}
        )
        t = r.timings
        self.speed.append(t["predicted_per_second"])
        self.texts.append(r.tokens)
        accepted = max(1, t.get("draft_n_accepted", 0))
        self.figures.append(
            {
                "pass_ms": t["predicted_ms"] / max(1, t["target_passes_n"] - 1),
                "tokens_per_pass": t["predicted_n"] / max(1, t["target_passes_n"]),
                "hit_share": t.get("draft_hit_n", 0) / max(1, t["target_passes_n"]),
                "step_ms": t.get("step_ms", {}).get("1", 0.0),
                "wait_ms_per_pass": t.get("verify_wait_ms", 0.0) / max(1, t["target_passes_n"]),
                "sent_bytes_per_accepted": t.get("network_sent_bytes", 0) / accepted,
                "received_bytes_per_accepted": t.get("network_received_bytes", 0) / accepted,
                "cable_bytes_per_accepted": (self.wire() - before) / accepted if self.wire else 0.0,
                "round_trip_ms": t.get("network_round_trip_ms", 0.0),
                "lost": t.get("network_lost_n", 0),
            }
        )


def start_host(stack: ExitStack, prefix: list[str], listen: str, args: argparse.Namespace) -> str:
    """Starts a draft host on the draft's core; returns its address."""
    command = [*prefix, "taskset", "-c", args.core_draft, sys.executable, "-m", "duo", "draft-host"]
    command += ["-md", args.draft, "-td", "1", "--insecure", "--listen", listen, "-cd", str(args.n_ctx)]
    p = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(p.terminate)
    assert p.stdout is not None
    return p.stdout.readline().split(" on ")[1].split(" ")[0]


def arms_of(stack: ExitStack, args: argparse.Namespace) -> list[Arm]:
    cores = args.cores
    place = {"cpu_range": cores if "-" in cores else f"{cores}-{cores}", "n_ctx": args.n_ctx}
    draft = {"cpu_range_draft": f"{args.core_draft}-{args.core_draft}"}
    here = stack.enter_context(duo.Duo(args.target, args.draft, **place, **draft))
    arms = [Arm("plain", here, {"mode": "plain"}), Arm("draft in process", here)]
    for rtt in args.rtt.split(","):
        if float(rtt) == 0:
            d = stack.enter_context(
                duo.Duo(args.target, draft_host=start_host(stack, [], "127.0.0.1:0", args), require_draft=True, **place)
            )
            arms.append(Arm("draft host, loopback", d))
            continue
        if why_not():
            raise SystemExit(f"a round trip of {rtt} ms is not possible: {why_not()}")
        c = stack.enter_context(far_machine(delay_ms=float(rtt) / 2, loss=args.loss, rate_kbit=args.rate))
        address = start_host(stack, c.command(), f"{c.there}:0", args)
        d = stack.enter_context(duo.Duo(args.target, draft_host=address, require_draft=True, **place))
        name = f"draft host, {rtt} ms" + (f", {args.loss:.0%} lost" if args.loss else "")
        arms.append(Arm(name + (f", {args.rate:g} kbit/s" if args.rate else ""), d, wire=lambda c=c: c.n_bytes))
    return arms


def row_of(arm: Arm, plain: Arm, in_process: Arm) -> dict[str, Any]:
    def ratio(base: Arm) -> float:
        return statistics.median(x / y for x, y in zip(arm.speed, base.speed, strict=True))

    figures = {name: statistics.median(f[name] for f in arm.figures) for name in arm.figures[0]}
    return {
        "arm": arm.name,
        "tokens_per_s": statistics.median(arm.speed),
        "low": min(arm.speed),
        "high": max(arm.speed),
        "to_plain": ratio(plain),
        "to_in_process": ratio(in_process),
        "equal_texts": sum(a == b for a, b in zip(arm.texts, plain.texts, strict=True)) / len(arm.texts),
        **figures,
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--cores", default="0", help="cores of the target, N or LO-HI")
    p.add_argument("--core-draft", default="1", help="core of the draft, here and on the hosts")
    p.add_argument("--rtt", default="0,50", help="round trips in ms; 0: loopback")
    p.add_argument(
        "--loss", type=float, default=0.0, help="share of lost packets, each way, if the round trip is above 0"
    )
    p.add_argument("--rate", type=float, default=0.0, help="kbit/s, under the same condition; 0: no limit")
    p.add_argument("--prompts", default=str(Path(__file__).parent / "prompts/completion_dev.jsonl"))
    p.add_argument("--questions", type=int, default=6)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("-n", type=int, default=64, help="tokens")
    p.add_argument("--n-ctx", type=int, default=512)
    p.add_argument("--temperature", type=float, default=0.0)
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()

    lines = Path(args.prompts).read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines[:: max(1, len(lines) // args.questions)]][: args.questions]
    with ExitStack() as stack:
        arms = arms_of(stack, args)
        for arm in arms:
            for _ in range(2):  # the planner learns what passes, steps and the round trip cost
                arm.write(prompts[0], args.n, args.temperature)
            arm.speed, arm.texts, arm.figures = [], [], []
        for r in range(args.rounds):
            for i, prompt in enumerate(prompts):
                first = (r * len(prompts) + i) % len(arms)
                for arm in arms[first:] + arms[:first]:
                    arm.write(prompt, args.n, args.temperature)
                print(f"round {r + 1}, prompt {i + 1}/{len(prompts)}", file=sys.stderr)
        here = arms[0].duo
        assert here.draft is not None
        settings = settings_of({k: v for k, v in vars(args).items() if k not in ("target", "draft", "out")})
        head = head_of([here.target, here.draft], command_of(["python", *sys.argv]), settings)
    rows = [row_of(arm, arms[0], arms[1]) for arm in arms]
    print("| arm | tokens/s | (low to high) | to plain | to in process | tokens/pass | ms/pass | hit |"
          " bytes/accepted token | round trip, ms |\n" + "|---" * 10 + "|")  # fmt: skip
    for x in rows:
        n_bytes = x["sent_bytes_per_accepted"] + x["received_bytes_per_accepted"]
        print(
            f"| {x['arm']} | {x['tokens_per_s']:.1f} | {x['low']:.1f} to {x['high']:.1f} | {x['to_plain']:.2f} "
            f"| {x['to_in_process']:.3f} | {x['tokens_per_pass']:.2f} | {x['pass_ms']:.1f} | {x['hit_share']:.0%} "
            f"| {n_bytes:.0f} | {x['round_trip_ms']:.1f} |"
        )
    if args.out:
        args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
