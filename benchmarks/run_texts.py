"""Several texts at once, as a new user starts them: nothing pinned, no options but the number of texts.

    python benchmarks/run_texts.py --target big.gguf --draft 0.2=medium.gguf --texts 1,2,4,8 --json texts.json

Each round loads one Duo for each number of texts, draft and mode, writes two short texts to warm up, and then the
given prompts with `generate_many`. The script reports tokens/s of all texts together, relative to the same mode with
one text at a time and to plain decoding with as many texts at once, and whether the texts equal those of plain
decoding, one at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import duo

PROMPTS = [
    "Once upon a time", "The king said", "There was a little girl who", "In the forest lived", "A long time ago",
    "The old man", "One day the dog", "She opened the door and",
]  # fmt: skip


def write(target: str, draft: str | None, mode: str, n: int, n_predict: int) -> tuple[float, list[tuple[int, ...]]]:
    """Tokens/s of all prompts, and the texts' tokens."""
    options: dict[str, Any] = {"max_tokens": n_predict, "temperature": 0, "ignore_eos": True, "mode": mode}
    with duo.Duo(target, draft, n_ctx=4096, n_parallel=n) as d:
        d.generate_many(["Hello there", "My name is"], **{**options, "max_tokens": 24})
        t0 = time.perf_counter()
        found = d.generate_many(PROMPTS, **options)
        seconds = time.perf_counter() - t0
    return sum(len(r.tokens) for r in found) / seconds, [r.tokens for r in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", action="append", default=[], metavar="C=FILE", help="its cost, as a label, and file")
    parser.add_argument("--texts", default="1,2,4,8")
    parser.add_argument("-n", type=int, default=64, help="tokens of each text")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    counts = [int(x) for x in args.texts.split(",")]
    drafts = dict(x.split("=", 1) for x in args.draft)
    arms = [("plain", "plain", None), *((f"async, c={c}", "async", file) for c, file in drafts.items())]
    speeds: dict[str, dict[int, list[float]]] = {name: {n: [] for n in counts} for name, _, _ in arms}
    right: list[tuple[int, ...]] | None = None
    equal = True
    for _ in range(args.rounds):
        for n in counts:
            for name, mode, file in arms:
                speed, tokens = write(args.target, file, mode, n, args.n)
                speeds[name][n].append(speed)
                right = tokens if right is None else right
                equal = equal and tokens == right
                print(f"{name:16} {n} at once: {speed:6.1f} tokens/s", flush=True)
    rows = []
    print(f"\n{'':16} texts  tokens/s  vs one at a time  vs plain")
    for name, by_count in speeds.items():
        for n, values in by_count.items():
            speed = statistics.median(values)
            one = statistics.median(x / y for x, y in zip(values, by_count[counts[0]], strict=True))
            plain = statistics.median(x / y for x, y in zip(values, speeds["plain"][n], strict=True))
            rows.append({"arm": name, "texts": n, "tokens_per_second": values, "vs_one": one, "vs_plain": plain})
            print(f"{name:16} {n:5}  {speed:8.1f}  {one:16.2f}  {plain:8.2f}")
    print(f"same tokens in all arms: {'yes' if equal else 'NO'}")
    if args.json is not None:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine()}
        args.json.write_text(json.dumps({"machine": machine, "equal": equal, "n": args.n, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
