"""Speed of one pair, side by side in one run: llama.cpp's loops, duo plain, sync, async, and with a useless draft.

    python benchmarks/run_pair.py --target big.gguf --draft small.gguf --useless random.gguf --cores 0 --cores-draft 1

Every arm writes each prompt before the next prompt begins, in a rotating order, so that a noisy moment affects all arms
alike. All models stay loaded. The script reports the median over prompts of tokens/s after the first token, and the
median of the ratios to llama.cpp's plain loop on the same prompt in the same round. With the same cores for both,
the models share them as they do by default.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.llama_cpp.llama_cpp import Loop, Mtp, Plain, Speculative

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


def llama_arms(args: argparse.Namespace, stack: ExitStack) -> Iterator[Arm]:
    """llama.cpp's own loops. All cores only, if target and draft share them."""
    target_cores = cores(args.cores)
    both = sorted({*target_cores, *cores(args.cores_draft)})
    lengths = [int(k) for k in args.lengths.split(",")]
    common = {"n_predict": args.n, "ignore_eos": True}
    of_target = {**common, "cores": target_cores, "threads": len(target_cores)}
    of_all = {**common, "cores": both, "threads": len(both)}
    enter = stack.enter_context
    places = {"all cores": of_all}
    if both != target_cores:
        places = {"target's cores": of_target, **places}
    for where, on in places.items():
        yield loop_arm(f"llama.cpp plain, {where}", enter(Loop(Plain(args.target, **on))))
    for k in lengths:
        for where, on in places.items():
            loop = Loop(Speculative(args.target, args.draft, n_draft=k, **on))
            yield loop_arm(f"llama.cpp speculative k={k}, {where}", enter(loop))
    for k in lengths if args.mtp else ():
        yield loop_arm(f"llama.cpp MTP k={k}, all cores", enter(Loop(Mtp(args.target, n_draft=k, **of_all))))


def duo_arms(args: argparse.Namespace, stack: ExitStack) -> Iterator[Arm]:
    """duo's modes. If target and draft share all cores, duo places them as it does by default."""
    low_high = [f"{on[0]}-{on[-1]}" for on in map(cores, (args.cores, args.cores_draft))]
    place: dict[str, Any] = {"n_ctx": 512}
    if low_high[0] != low_high[1]:
        place |= {"cpu_range": low_high[0], "cpu_range_draft": low_high[1]}
    for kernels in args.kernels.split(","):
        ks = [int(k) for k in (args.lengths_duo if kernels == "duo" else args.lengths).split(",")]
        on = f", {kernels} kernels"
        d = stack.enter_context(duo.Duo(args.target, args.draft, cpu_kernels=kernels, **place))
        yield duo_arm(f"duo plain{on}", d, args, mode="plain")
        for k in ks:
            yield duo_arm(f"duo sync k={k}{on}", d, args, mode="sync", n_draft=k)
        for k in ks:
            yield duo_arm(f"duo async, k up to {k}{on}", d, args, mode="async", n_draft=k)
        yield duo_arm(f"duo async auto{on}", d, args, mode="async")
        if args.mtp:
            m = stack.enter_context(duo.Duo(args.target, cpu_kernels=kernels, spec_type=["draft-mtp"], **place))
            yield duo_arm(f"duo plain, MTP layers loaded{on}", m, args, mode="plain")
            for k in ks:
                yield duo_arm(f"duo MTP sync k={k}{on}", m, args, mode="sync", n_draft=k)
            yield duo_arm(f"duo MTP async auto{on}", m, args, mode="async")
        if args.useless:
            u = stack.enter_context(duo.Duo(args.target, args.useless, cpu_kernels=kernels, **place))
            yield duo_arm(f"duo async auto, useless draft{on}", u, args, mode="async")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--useless", help="a draft that is never right (duo dev random-model)")
    p.add_argument("--mtp", action="store_true", help="also the target's MTP layers in place of the draft")
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
    with ExitStack() as stack:
        arms = [*llama_arms(args, stack), *duo_arms(args, stack)]
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
