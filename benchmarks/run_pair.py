"""Speed of one pair, side by side in one run: llama.cpp's loops, duo plain, sync, async, and with a useless draft.

    python benchmarks/run_pair.py --target big.gguf --draft small.gguf --useless random.gguf --cores 0 --cores-draft 1

Every arm writes each prompt before the next prompt begins, in a rotating order, so that a noisy moment affects all arms
alike. All models stay loaded. The script reports the median over prompts of tokens/s after the first token, and the
median of the ratios to llama.cpp's plain loop on the same prompt in the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.llama_cpp.llama_cpp import Loop, Plain, Speculative

import duo
from duo.benchmark.bench.head import command_of, machine, settings_of


@dataclass
class Arm:
    name: str
    write: Callable[[str], tuple[float, float | None]]  # prompt -> tokens/s, acceptance
    speed: list[float] = field(default_factory=list)
    acceptance: list[float] = field(default_factory=list)


def cores(text: str) -> list[int]:
    low, _, high = text.partition("-")
    return list(range(int(low), int(high or low) + 1))


def duo_arm(name: str, d: duo.Duo, args: argparse.Namespace, **options: object) -> Arm:
    def write(prompt: str) -> tuple[float, float | None]:
        d.generate(prompt, max_tokens=args.n, temperature=0, ignore_eos=True, **options)
        return d.timings["predicted_per_second"], d.timings.get("draft_acceptance")

    return Arm(name, write)


def loop_arm(name: str, loop: Loop) -> Arm:
    def write(prompt: str) -> tuple[float, float | None]:
        r = loop.run(prompt)
        return r.tokens_per_s, r.acceptance if r.n_drafted else None

    return Arm(name, write)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--useless", help="a draft that is never right (duo dev random-model)")
    p.add_argument("--cores", default="0", help="LO-HI of the target")
    p.add_argument("--cores-draft", default="1", help="LO-HI of the draft")
    p.add_argument("--prompts", default=str(Path(__file__).parent / "prompts/completion_dev.jsonl"))
    p.add_argument("--questions", type=int, default=6, help="prompts, spread over the file")
    p.add_argument("--lengths", default="1,2,4", help="draft lengths of llama.cpp's loop and of duo on stock kernels")
    p.add_argument("--lengths-duo", default="3,5,7", help="draft lengths of duo on its own CPU kernels")
    p.add_argument("--kernels", default="duo,stock", help="CPU kernels of duo's arms")
    p.add_argument("-n", type=int, default=64, help="tokens")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()

    lines = Path(args.prompts).read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines[:: max(1, len(lines) // args.questions)]][: args.questions]
    lengths = [int(k) for k in args.lengths.split(",")]
    target_cores, draft_cores = cores(args.cores), cores(args.cores_draft)
    both = sorted({*target_cores, *draft_cores})
    place = {
        "cpu_range": f"{target_cores[0]}-{target_cores[-1]}",
        "cpu_range_draft": f"{draft_cores[0]}-{draft_cores[-1]}",
        "n_ctx": 512,
    }
    common = {"n_predict": args.n, "ignore_eos": True}
    with ExitStack() as stack:
        enter = stack.enter_context
        arms = [
            loop_arm("llama.cpp plain, target's cores", enter(Loop(Plain(args.target, cores=target_cores, **common)))),
            loop_arm(
                "llama.cpp plain, all cores",
                enter(Loop(Plain(args.target, cores=both, threads=len(both), **common))),
            ),
        ]
        for k in lengths:
            loop = Loop(Speculative(args.target, args.draft, cores=target_cores, n_draft=k, **common))
            arms.append(loop_arm(f"llama.cpp speculative k={k}, target's cores", enter(loop)))
            loop = Loop(
                Speculative(
                    args.target, args.draft, cores=both, threads=len(both), threads_draft=len(both), n_draft=k, **common
                )
            )
            arms.append(loop_arm(f"llama.cpp speculative k={k}, all cores", enter(loop)))
        for kernels in args.kernels.split(","):
            ks = [int(k) for k in args.lengths_duo.split(",")] if kernels == "duo" else lengths
            d = enter(duo.Duo(args.target, args.draft, cpu_kernels=kernels, **place))
            on = f", {kernels} kernels"
            arms.append(duo_arm(f"duo plain{on}", d, args, mode="plain"))
            arms += [duo_arm(f"duo sync k={k}{on}", d, args, mode="sync", n_draft=k) for k in ks]
            arms += [duo_arm(f"duo async, k up to {k}{on}", d, args, mode="async", n_draft=k) for k in ks]
            arms.append(duo_arm(f"duo async auto{on}", d, args, mode="async"))
            if args.useless:
                u = enter(duo.Duo(args.target, args.useless, cpu_kernels=kernels, **place))
                arms.append(duo_arm(f"duo async auto, useless draft{on}", u, args, mode="async"))

        for arm in arms:
            arm.write(prompts[0])  # warm-up; the planner learns what passes cost
        for r in range(args.rounds):
            for i, prompt in enumerate(prompts):
                start = (r * len(prompts) + i) % len(arms)
                for arm in arms[start:] + arms[:start]:
                    speed, acceptance = arm.write(prompt)
                    arm.speed.append(speed)
                    if acceptance is not None:
                        arm.acceptance.append(acceptance)
                print(f"round {r + 1}, prompt {i + 1}/{len(prompts)}", file=sys.stderr)

    base = arms[0]
    rows = []
    for arm in arms:
        # The j-th figures of two arms are for the same prompt in the same round.
        ratios = [x / y for x, y in zip(arm.speed, base.speed, strict=True)]
        rows.append(
            {
                "arm": arm.name,
                "tokens_per_s": statistics.median(arm.speed),
                "low": min(arm.speed),
                "high": max(arm.speed),
                "ratio": statistics.median(ratios),
                "ratios": ratios,
                "speeds": arm.speed,
                "acceptance": statistics.mean(arm.acceptance) if arm.acceptance else None,
            }
        )
    print("| arm | tokens/s | low to high | to llama.cpp plain | low to high | acceptance |\n" + "|---" * 6 + "|")
    for row in rows:
        a = "" if row["acceptance"] is None else f"{100 * row['acceptance']:.0f}%"
        print(
            f"| {row['arm']} | {row['tokens_per_s']:.1f} | {row['low']:.1f} to {row['high']:.1f} "
            f"| {row['ratio']:.2f} | {min(row['ratios']):.2f} to {max(row['ratios']):.2f} | {a} |"
        )
    if args.out:
        head = {"machine": machine(), "command": command_of(sys.argv), "options": settings_of(vars(args))}
        args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
