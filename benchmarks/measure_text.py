"""How often the text differs from that of plain decoding, and how often target and draft agree.

    python benchmarks/measure_text.py [--target T.gguf --draft D.gguf] [--questions 40] [-n 256] [--out FILE]

1. Greedy texts with duo's kernels, with stock kernels (which round a row differently at other widths) and with
   --strict, each compared with plain decoding in the same setting.
2. Acceptance of single guesses (sync, draft length 1), greedy and at temperature 0.8 and 1 with shared noise.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import duo
from duo.benchmark.bench.head import command_of
from duo.models.demo import demo_pair


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target", default=str(demo_pair()[0]))
    p.add_argument("--draft", default=str(demo_pair()[1]))
    p.add_argument("--questions", type=int, default=40)
    p.add_argument("-n", type=int, default=256)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    lines = (Path(__file__).parent / "prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines][: args.questions]

    found: dict[str, object] = {"questions": len(prompts), "tokens": args.n}
    settings = {"duo kernels": {"cpu_kernels": "duo"}, "stock kernels": {"cpu_kernels": "stock"}}
    settings["stock kernels, strict"] = settings["stock kernels"] | {"strict": True}
    for setting, options in settings.items():
        with duo.Duo(args.target, args.draft, n_ctx=512, **options) as d:

            def text(prompt: str, d: duo.Duo = d, **options: object) -> tuple[int, ...]:
                return d.generate(prompt, temperature=0, max_tokens=args.n, **options).tokens

            plain = [text(q, mode="plain") for q in prompts]
            for mode in ("sync", "async"):
                same = [text(q, mode=mode, n_draft=4) == t for q, t in zip(prompts, plain, strict=True)]
                name = f"{setting}, {mode} k=4: texts equal to plain"
                found[name] = f"{sum(same)} of {len(same)}"
    with duo.Duo(args.target, args.draft, n_ctx=512) as d:
        settings = {
            "greedy": {"temperature": 0},
            "temperature 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95, "top_k": 0, "min_p": 0.0},
            "temperature 1": {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0.0},
        }
        for name, options in settings.items():
            n = k = 0
            for seed, q in enumerate(prompts):
                d.generate(q, max_tokens=args.n, seed=seed, mode="sync", n_draft=1, **options)
                n, k = n + d.timings["draft_n"], k + d.timings["draft_n_accepted"]
            found[f"acceptance of a guess, {name}"] = round(k / n, 4)
    for name, value in found.items():
        print(f"{name}: {value}")
    if args.out:
        args.out.write_text(json.dumps({"command": command_of(sys.argv), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
