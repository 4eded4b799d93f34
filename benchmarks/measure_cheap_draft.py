"""What a cheaper draft costs in right guesses: the types that `--draft-pack` stores, and the sizes of `--draft-vocab`.

    python -m benchmarks.measure_cheap_draft --target T.gguf --draft D.gguf [--questions 14] [-n 64] [--only q4_0]
        [--out FILE]

The models take turns, four guesses in a pass, with each way of loading the draft, on the questions of run_real. The
script counts how often the first guess of a pass was right, and how many tokens a pass brought. These are counts, not
times, so the machine may do other things meanwhile. Each way writes the same texts, or the script says so.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.real_questions import chosen

from duo.gguf_tools.switched_duo import SwitchedDuo

WAYS: dict[str, dict[str, Any]] = {
    "as in the file": {"draft_pack": "off", "draft_vocab": "all"},
    "iq4_nl": {"draft_pack": "iq4_nl", "draft_vocab": "all"},
    "q4_0": {"draft_pack": "q4_0", "draft_vocab": "all"},
    "q4_0, 65536 tokens": {"draft_pack": "q4_0", "draft_vocab": 65536},
    "q4_0, 32768 tokens": {"draft_pack": "q4_0", "draft_vocab": 32768},
    "q4_0, 16384 tokens": {"draft_pack": "q4_0", "draft_vocab": 16384},
    "q4_0, 8192 tokens": {"draft_pack": "q4_0", "draft_vocab": 8192},
}


def count(target: str, draft: str, n_questions: int, n: int, way: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Right first guesses, tokens of a pass, by kind of work and in all; and the texts."""
    kinds: dict[str, list[int]] = {}
    texts = []
    with SwitchedDuo(target, draft, n_ctx=2048, always=True, cpu_kernels="duo", **way) as d:
        for q in chosen(n_questions):
            r = d.generate(q.prompt, max_tokens=n, temperature=0, mode="sync", n_draft=4, draft_tree="chain")
            t = r.timings
            texts.append(r.tokens)
            sums = kinds.setdefault(q.category, [0, 0, 0, 0])
            for i, x in enumerate(
                (
                    t["draft_n_accepted_by_position"][0],
                    t["draft_n_by_position"][0],
                    t["draft_n_accepted"],
                    t["draft_rounds"],
                )
            ):
                sums[i] += x
    kinds["all"] = [sum(column) for column in zip(*kinds.values(), strict=True)]
    counts = {
        kind: {"right": right / tested, "tokens_per_pass": 1 + accepted / rounds, "n": tested}
        for kind, (right, tested, accepted, rounds) in kinds.items()
    }
    return counts, texts


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--questions", type=int, default=14)
    p.add_argument("-n", type=int, default=64)
    p.add_argument("--only", default="", help="ways with this text in their names")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    rows: dict[str, Any] = {}
    first: list[Any] = []
    for name, way in ((name, way) for name, way in WAYS.items() if a.only in name):
        rows[name], texts = count(a.target, a.draft, a.questions, a.n, way)
        first = first or texts
        kinds = "  ".join(f"{kind} {x['right']:.3f}" for kind, x in rows[name].items())
        print(f"{name:20} {kinds}  {rows[name]['all']['tokens_per_pass']:.2f} tokens a pass", flush=True)
        if texts != first:
            print("  its texts differ")
        if a.out:
            a.out.write_text(json.dumps({"target": a.target, "draft": a.draft, "n": a.n, "ways": rows}, indent=1))


if __name__ == "__main__":
    main()
