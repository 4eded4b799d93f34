"""Drafts with another vocabulary beside one with the target's: how often they are right, and what they bring.

PYTHONPATH=tools[:tests] python -m benchmarks.measure_other_vocabulary [--demo] --questions 14 -n 64 --out FILE

The target is Qwen2.5-Coder 1.5B (`make models`), the questions are those of run_real.py. With --demo it is the demo
target, which goes on with openings of its domain; its drafts are the demo draft, the same weights with other ids for
the same tokens, and without 10, 30 and 60% of the longer tokens, so that words are spelled otherwise. Each draft is
loaded in turn, in a Duo of its own with default options; the target alone writes before and after them, and its mean
time is the base. Right guesses are counted in turn-taking with three guesses, speed is that of default options, prompt
included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import real_models  # tools/real_models.py
from benchmarks.real_questions import chosen

from duo import Duo
from duo.benchmark.bench.head import command_of, machine
from duo.benchmark.bench.questions import read
from duo.models.demo import demo_pair

OPENINGS = Path(__file__).parent / "prompts/completion_dev.jsonl"
LEFT_OUT = (0.1, 0.3, 0.6)  # shares of the longer tokens
TARGET = "qwen2.5-coder-1.5b-q4_k_m"
DRAFTS = ("qwen2.5-coder-0.5b-q4_k_m", "smollm2-135m-q4_1", "gemma3-270m-q4_k_m")


def write(d: Duo, prompt: str, n: int, **options: Any) -> dict[str, Any]:
    began = time.monotonic()
    r = d.generate(prompt, max_tokens=n, temperature=0, **options)
    seconds = time.monotonic() - began
    figures = ("draft_n", "draft_n_accepted", "passes_at_rest_n", "target_passes_n")
    counted = {name: r.timings.get(name) for name in figures}
    return {"tokens": list(r.tokens), "seconds": seconds, "warning": r.warning, **counted}


def real() -> tuple[Path, dict[str, Path]]:
    """The target, and the drafts by their names."""
    path = {name: m.path for name, m in real_models.MODELS.items()}
    return path[TARGET], {name: path[name] for name in DRAFTS}


def demo(folder: Path) -> tuple[Path, dict[str, Path]]:
    """As `real`; the drafts are made in this folder."""
    from other_vocabularies import shuffled, thinned  # tests/other_vocabularies.py, which only this needs

    target, draft = demo_pair()
    fewer = {
        f"without {100 * share:.0f}% of the longer tokens": thinned(draft, folder / f"{share}.gguf", share)
        for share in LEFT_OUT
    }
    return target, {"the demo draft": draft, "other ids": shuffled(draft, folder / "shuffled.gguf")} | fewer


def arm(target: Path, draft: str | None, path: Path | None, prompts: list[str], n: int) -> dict[str, Any]:
    with Duo(target, path, n_ctx=2048) as d:
        texts = [write(d, p, n) for p in prompts]
        turns = [] if draft is None else [write(d, p, n, mode="sync", n_draft=3, cache_prompt=False) for p in prompts]
        n_vocab = None if d.draft is None else d.draft.n_vocab
        return {"draft": draft, "n_vocab": n_vocab, "shared_vocabulary": d.engine.shared_vocabulary, "texts": texts,
                "sync_3": turns}  # fmt: skip


def report(alone: list[dict[str, Any]], found: dict[str, Any]) -> str:
    """alone: of the target without a draft, before the others and after them."""
    before, after = (a["texts"] for a in alone)
    base = [(a["seconds"] + b["seconds"]) / 2 for a, b in zip(before, after, strict=True)]
    ratios = [a / b["seconds"] for a, b in zip(base, found["texts"], strict=True)]
    same = sum(a["tokens"] == b["tokens"] for a, b in zip(before, found["texts"], strict=True))
    drafted = sum(t["draft_n"] or 0 for t in found["sync_3"])
    right = sum(t["draft_n_accepted"] or 0 for t in found["sync_3"]) / max(1, drafted)
    share = found["shared_vocabulary"]
    return (
        f"| {found['draft'] or 'none'} | {'' if share is None else f'{100 * share:.0f}%'} "
        f"| {f'{100 * right:.0f}%' if drafted else ''} | {min(ratios):.2f} | {statistics.median(ratios):.2f} "
        f"| {max(ratios):.2f} | {same} of {len(ratios)} |"
    )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--demo", action="store_true", help="the demo pair")
    p.add_argument("--questions", type=int, default=14)
    p.add_argument("-n", type=int, default=64, help="tokens")
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    if args.demo:
        openings = read(OPENINGS)[: args.questions]
        prompts, ids = [q.turns[0] for q in openings], [q.question_id for q in openings]
    else:
        asked = chosen(args.questions)
        prompts, ids = [a.prompt for a in asked], [a.question_id for a in asked]
    with tempfile.TemporaryDirectory() as folder:
        target, drafts = demo(Path(folder)) if args.demo else real()
        tried = [(None, None), *drafts.items(), (None, None)]
        arms = [arm(target, name, path, prompts, args.n) for name, path in tried]
    print("| draft | shared vocabulary | right guesses (sync 3) | worst | median | best | equal texts |")
    print("|---|---|---|---|---|---|---|")
    for a in arms:
        print(report([arms[0], arms[-1]], a))
    if args.out:
        for a in arms:
            pairs = zip(arms[0]["texts"], a["texts"], strict=True)
            a["equal"] = sum(first["tokens"] == own["tokens"] for first, own in pairs)  # to those of the target alone
        for text in (t for a in arms for t in (*a["texts"], *a["sync_3"])):
            text["tokens"] = len(text["tokens"])
        record = {"machine": machine(), "command": command_of(sys.argv), "target": target.name,
                  "questions": ids, "arms": arms}  # fmt: skip
        args.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
