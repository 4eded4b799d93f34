"""What a draft's window costs in right guesses, and what it brings in time (--draft-window).

    python benchmarks/measure_window.py --target T.gguf --draft D.gguf [--questions 6] [-n 96] [--category rag]
        [--times] [--out FILE]

The prompts are summaries and questions with documents (Spec-Bench), in the target's chat template. The models take
turns, four guesses in a pass, with each window. The script counts how often the first guess of a pass was right, and
how many tokens a pass brought: counts, not times. With --times it writes each text three times in turn instead: plain;
with default options; and with default options and --draft-window all. Times are from the request to the last token.
Each way has a Duo of its own, which learns from its own texts only, with DUO_PROFILES=off.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import duo
from duo.gguf_tools.switched_duo import SwitchedDuo

WINDOWS: tuple[int | str, ...] = (64, 128, 256, 512, "all")
# So that the draft begins at once, whether that pays or not.
OWN_CORES: dict[str, Any] = {"n_threads": 1, "n_threads_draft": 1, "cpu_range": "0-0", "cpu_range_draft": "1-1"}
CATEGORIES = ("summarization", "rag")
QUESTIONS = Path(__file__).parent / "prompts/spec_bench_half.jsonl"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"mode": "plain"},
    "async": {},
    "async, all": {"draft_window": "all"},
}


def prompts_of(d: duo.Duo, category: str, n: int) -> list[list[int]]:
    """Tokens of n prompts, spread over the category."""
    found = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
    turns = [x["turns"][0] for x in found if x["category"] == category]
    texts = turns[:: max(1, len(turns) // n)][:n]
    chat = d.chat_template
    return [d.tokenize(chat.render([{"role": "user", "content": text}]), add_bos=False, special=True) for text in texts]


def acceptance(d: duo.Duo, prompts: list[list[int]], n: int, window: int | str) -> dict[str, Any]:
    """Of the first guess of a pass, and tokens of a pass."""
    tested = right = rounds = accepted = 0
    for prompt in prompts:
        d.generate("x", max_tokens=1, temperature=0)  # nothing of the prompt stays in the caches
        t = d.generate(
            prompt, max_tokens=n, temperature=0, mode="sync", n_draft=4, draft_tree="chain", draft_window=window
        ).timings
        tested += t["draft_n_by_position"][0]
        right += t["draft_n_accepted_by_position"][0]
        rounds += t["draft_rounds"]
        accepted += t["draft_n_accepted"]
    return {"window": window, "acceptance": right / tested, "tokens_per_pass": 1 + accepted / rounds, "n": tested}


def times(ways: dict[str, duo.Duo], prompt: list[int], n: int) -> dict[str, Any]:
    row: dict[str, Any] = {"n_prompt": len(prompt)}
    tokens = set()
    for name, d in ways.items():
        r = d.generate(prompt, max_tokens=n, temperature=0, **WAYS[name])
        t = r.timings
        tokens.add(r.tokens)
        row[name] = {
            "ms": t["prompt_ms"] + t["predicted_ms"],
            "tokens_per_second": t["predicted_per_second"],
            "draft_n": t.get("draft_n", 0),
            "draft_n_accepted": t.get("draft_n_accepted", 0),
        }
    row["n"] = len(next(iter(tokens)))
    row["equal"] = len(tokens) == 1
    return row


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--questions", type=int, default=6, help="of each category")
    p.add_argument("--category", choices=CATEGORIES, help="default: both")
    p.add_argument("-n", type=int, default=96)
    p.add_argument("--times", action="store_true")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    categories = [a.category] if a.category else CATEGORIES
    out: dict[str, Any] = {"acceptance": {}, "times": {}}
    if not a.times:
        with SwitchedDuo(a.target, a.draft, n_ctx=4096, always=True, **OWN_CORES) as d:
            for category in categories:
                prompts = prompts_of(d, category, a.questions)
                print(f"{category}: prompts of {min(map(len, prompts))} to {max(map(len, prompts))} tokens")
                out["acceptance"][category] = rows = []
                for window in WINDOWS:
                    rows.append(acceptance(d, prompts, a.n, window))
                    r = rows[-1]
                    print(
                        f"  {window!s:>4}  {r['acceptance']:.3f} of {r['n']}  {r['tokens_per_pass']:.2f} tokens",
                        flush=True,
                    )
    else:
        ways = {name: duo.Duo(a.target, a.draft, n_ctx=4096) for name in WAYS}
        for category in categories:
            prompts = prompts_of(ways["plain"], category, a.questions)
            out["times"][category] = rows = []
            for prompt in prompts:
                rows.append(row := times(ways, prompt, a.n))
                ms = {name: row[name]["ms"] for name in ways}
                print(
                    category, row["n_prompt"], row["n"], {k: round(v) for k, v in ms.items()}, row["equal"], flush=True
                )
            for name in ways:
                ratios = sorted(r["plain"]["ms"] / r[name]["ms"] for r in rows)
                print(f"  plain / {name}: {ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f}")
        for d in ways.values():
            d.close()
    if a.out:
        a.out.write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
