"""How batched texts affect each other: three figures of a Duo with four slots.

    python benchmarks/measure_company.py [--target big.gguf --draft medium.gguf] [--rounds 5] [--out FILE]

1. alone: one text with n_parallel=4 against the same text with n_parallel=1, interleaved.
2. fairness: four texts with the same prompt and different seeds at once; the slowest against the mean.
3. joining: the longest time between two passes of a running text while a long prompt joins, in passes of 64 rows, which
   are measured in the same Duo; and the time to the newcomer's first token against the same prompt alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
from pathlib import Path
from typing import Any

import duo
from duo.benchmark.bench.head import machine, settings_of
from duo.models.demo import demo_pair

PROMPT = "Once upon a time there was a little tin soldier who"
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
N_BEFORE = 16  # tokens of the running text before the newcomer comes
N_PASS = 64  # rows of a pass with a piece of a prompt


def alone(one: duo.Duo, four: duo.Duo, n: int, rounds: int) -> dict[str, Any]:
    """Tokens/s of each, and the median of the ratios."""
    speeds: list[list[float]] = [[], []]
    for i in range(rounds + 1):
        for j in (0, 1) if i % 2 else (1, 0):
            d = (one, four)[j]
            d.generate(PROMPT, max_tokens=n, **GREEDY)
            if i > 0:  # the first round is for the planner
                speeds[j].append(d.timings["predicted_per_second"])
    ratio = statistics.median(b / a for a, b in zip(*speeds, strict=True))
    return {"np1_tokens_per_s": speeds[0], "np4_tokens_per_s": speeds[1], "ratio": ratio}


def fairness(four: duo.Duo, n: int, rounds: int) -> dict[str, Any]:
    """Slowest / mean of four texts' tokens/s, in each round."""
    found = []
    for r in range(rounds):
        speeds: list[float] = []

        def write(seed: int, speeds: list[float] = speeds) -> None:
            t = four.generate(PROMPT, max_tokens=n, ignore_eos=True, temperature=0.8, seed=seed).timings
            speeds.append(t["predicted_per_second"])

        threads = [threading.Thread(target=write, args=(4 * r + i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        found.append(min(speeds) / statistics.fmean(speeds))
    return {"slowest_to_mean": found, "median": statistics.median(found)}


def joining(four: duo.Duo, n_prompt: int, n: int, rounds: int) -> dict[str, Any]:
    """Gaps of the running text, and times to the newcomer's first token, in each round."""
    dice = random.Random(1)
    n_vocab = four.target.n_vocab

    def tokens(k: int) -> list[int]:
        return [dice.randrange(300, n_vocab) for _ in range(k)]  # not in any cache

    def first_ms(prompt: list[int]) -> float:
        return four.generate(prompt, max_tokens=2, mode="plain", **GREEDY).timings["ttft_ms"]

    pass_ms = statistics.median(first_ms(tokens(N_PASS)) for _ in range(5))
    rows = []
    for _ in range(rounds):
        first_alone = first_ms(tokens(n_prompt))
        newcomer: list[float] = []
        join = threading.Thread(target=lambda found=newcomer: found.append(first_ms(tokens(n_prompt))))
        times: list[int] = []
        with four.stream(PROMPT, max_tokens=-1, **GREEDY) as stream:
            for chunk in stream:
                times.append(chunk.t_us)
                if len(times) == N_BEFORE:
                    join.start()
                if newcomer or len(times) > N_BEFORE + n:
                    break
        join.join()
        gaps = [(b - a) / 1e3 for a, b in zip(times[N_BEFORE - 1 :], times[N_BEFORE:], strict=False)]
        rows.append({"longest_gap_ms": max(gaps), "first_token_ms": newcomer[0], "first_token_alone_ms": first_alone})
    gap = statistics.median(r["longest_gap_ms"] for r in rows) / pass_ms
    ttft = statistics.median(r["first_token_ms"] / r["first_token_alone_ms"] for r in rows)
    return {"prompt": n_prompt, "pass_of_64_ms": pass_ms, "rounds": rows, "gap_in_passes": gap, "first_to_alone": ttft}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", default=str(demo_pair()[0]))
    p.add_argument("--draft", default=str(demo_pair()[1]))
    p.add_argument("-n", type=int, default=128, help="tokens of each text")
    p.add_argument("--prompt", type=int, default=4000, help="tokens of the prompt that joins")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    found: dict[str, Any] = {"machine": machine(), "settings": settings_of(vars(args))}
    n_ctx = args.prompt + 4096
    with duo.Duo(args.target, args.draft, n_ctx=n_ctx, n_parallel=4) as four:
        with duo.Duo(args.target, args.draft, n_ctx=n_ctx) as one:
            found["alone"] = alone(one, four, args.n, args.rounds)
        print(f"one text, -np 4 against -np 1: {found['alone']['ratio']:.3f}", flush=True)
        found["fairness"] = fairness(four, args.n, args.rounds)
        print(f"four equal texts, slowest / mean: {found['fairness']['median']:.3f}", flush=True)
        found["joining"] = j = joining(four, args.prompt, args.n * 64, args.rounds)
        print(
            f"a prompt of {args.prompt} tokens joins: longest gap {j['gap_in_passes']:.2f} passes of 64 rows "
            f"({j['pass_of_64_ms']:.1f} ms each); first token after {j['first_to_alone']:.2f} of its time alone"
        )
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
