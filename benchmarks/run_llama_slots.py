"""llama.cpp beside duo, several texts at once on the same cores.

    python -m benchmarks.run_llama_slots --target big.gguf --draft 0.2=medium.gguf --texts 1,2,4 --out FILE

llama.cpp: `benchmarks/llama_cpp/slots_loop`, llama-server's loop over libllama with stock kernels: plain decoding, and
batched speculation with its default draft length (3) and a longer one. duo: the default (async), nothing pinned. Every
arm writes the same greedy texts, in turn. Tokens/s count all texts together, prompts included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.llama_cpp.llama_cpp import Loop, Slots

import duo
from duo.benchmark.bench.head import machine, settings_of
from duo.benchmark.bench.questions import read

N_CTX = 4096
Write = Callable[[list[str]], tuple[float, int]]  # prompts -> seconds, tokens


def of_llama(options: Slots, prompts: list[str]) -> tuple[float, int]:
    with Loop(options) as loop:
        loop.run_all(prompts[: options.slots])
        seconds, texts = loop.run_all(prompts)
    return seconds, sum(len(t.tokens) for t in texts)


def of_duo(target: str, draft: str, slots: int, n: int, prompts: list[str]) -> tuple[float, int]:
    with duo.Duo(target, draft, n_ctx=N_CTX, n_parallel=slots) as d:
        options: dict[str, Any] = {"max_tokens": n, "temperature": 0, "ignore_eos": True}
        d.generate_many(prompts[:slots], **options)
        # Other texts take the place of the prompts in the caches.
        d.generate_many([f"Chapter {i}" for i in range(slots)], **{**options, "max_tokens": 1})
        t0 = time.perf_counter()
        found = d.generate_many(prompts, **options)
        return time.perf_counter() - t0, sum(len(r.tokens) for r in found)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True, metavar="C=FILE", help="its cost, as a label, and file")
    p.add_argument("--texts", default="1,2,4")
    p.add_argument("--lengths", default="3,16", help="draft lengths of llama.cpp")
    p.add_argument("-n", type=int, default=64, help="tokens of each text")
    p.add_argument("--questions", type=int, default=8)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    cost, draft = args.draft.split("=", 1)
    prompts = [q.turns[0] for q in read()][: args.questions]
    common: dict[str, Any] = {"n_predict": args.n, "threads": os.cpu_count() or 1, "ignore_eos": True, "n_ctx": N_CTX}
    speeds: dict[tuple[str, int], list[float]] = {}
    counts = [int(x) for x in args.texts.split(",")]
    for _ in range(args.rounds):
        for slots in counts:
            plain = Slots(args.target, slots=slots, **common)
            drafted = {k: Slots(args.target, slots=slots, draft=draft, n_draft=int(k), **common)
                       for k in args.lengths.split(",")}  # fmt: skip
            arms: dict[str, Write] = {"llama.cpp, plain": lambda x, o=plain: of_llama(o, x)}
            arms |= {f"llama.cpp, draft {k}": lambda x, o=o: of_llama(o, x) for k, o in drafted.items()}
            arms["duo, async"] = lambda x, s=slots: of_duo(args.target, draft, s, args.n, x)
            for name, write in arms.items():
                seconds, n_tokens = write(prompts)
                speeds.setdefault((name, slots), []).append(n_tokens / seconds)
                print(f"{name:20} {slots} at once: {n_tokens / seconds:6.1f} tokens/s", flush=True)
    rows = []
    print(f"\nc = {cost}\n{'':20} texts  tokens/s  duo against it")
    for (name, slots), values in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(speeds["duo, async", slots], values, strict=True))
        rows.append({"arm": name, "texts": slots, "tokens_per_s": values, "duo_against_it": ratio})
        print(f"{name:20} {slots:5}  {statistics.median(values):8.1f}  {ratio:14.2f}")
    if args.out is not None:
        found = {"machine": machine(), "settings": settings_of(vars(args)), "rows": rows}
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
