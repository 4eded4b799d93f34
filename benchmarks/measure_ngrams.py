"""What n-grams bring a target without a draft, and beside one: texts that repeat their prompt, and texts that do not.

PYTHONPATH=tools python -m benchmarks.measure_ngrams --questions 14 -n 64 --rounds 3 --out FILE

The target is Qwen2.5-Coder 1.5B, with --with-draft also its published draft (`make models`). The questions are those
of run_real.py, and four files to be edited and returned; with --forms they are eight notes to be turned into the same
form, where ngram-mod, which looks into earlier texts, stands beside ngram-map-k, which does not. Each text is written
plain and with each kind of n-grams, in turn, with default options: by a Duo of its own for each, so that one's texts
teach another nothing. The figures are ratios of whole times, prompt included: the median of the rounds for each text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import real_models  # tools/real_models.py
from benchmarks.real_questions import Asked, chatml, chosen

from duo import Duo
from duo.benchmark.bench.head import command_of, machine
from duo.benchmark.bench.questions import read

TARGET = "qwen2.5-coder-1.5b-q4_k_m"
DRAFT = "qwen2.5-coder-0.5b-q4_k_m"
KINDS = ("ngram-map-k", "ngram-map-k4v")
WITH_DRAFT = ("draft-simple", "draft-simple,ngram-map-k")
OF_FORMS = ("ngram-map-k", "ngram-mod")
PLAIN = "plain"
EDITS = Path(__file__).parent / "prompts/edits.jsonl"
FORMS = EDITS.with_name("forms.jsonl")
N_EDIT = 192  # tokens of an edited file
N_FORM = 128


def edits() -> list[Asked]:
    return [Asked("edit", q.question_id, chatml(q.turns[0])) for q in read(EDITS)]


def forms() -> list[Asked]:
    return [Asked("form", q.question_id, chatml(q.turns[0])) for q in read(FORMS)]


def sources(args: argparse.Namespace) -> tuple[str, ...]:
    if not args.forms:
        return WITH_DRAFT if args.with_draft else KINDS
    return tuple(f"draft-simple,{kind}" for kind in OF_FORMS) if args.with_draft else OF_FORMS


def opened(kind: str) -> Duo:
    sources = kind.split(",")
    draft = str(real_models.MODELS[DRAFT].path) if "draft-simple" in sources else None
    d = Duo(str(real_models.MODELS[TARGET].path), draft, n_ctx=4096)
    d.defaults.update({"mode": "plain"} if kind == PLAIN else {"spec_type": sources})
    return d


def write(d: Duo, asked: Asked, n: int) -> dict[str, Any]:
    began = time.monotonic()
    r = d.generate(asked.prompt, max_tokens=n, temperature=0, cache_prompt=False)
    seconds = time.monotonic() - began
    counted = {k: r.timings.get(k) for k in ("draft_n", "draft_n_accepted", "passes_at_rest_n", "target_passes_n")}
    return {"tokens": list(r.tokens), "n_prompt": r.prompt_tokens, "seconds": seconds, **counted}


def report(texts: list[dict[str, Any]], kinds: tuple[str, ...]) -> None:
    print(f"| work | prompt, tokens | answer | {' | '.join(kinds)} | right guesses | equal texts |")
    print("|---|---|---|" + "---|" * (len(kinds) + 2))
    for t in texts:
        first = t["rounds"][0][PLAIN]
        ratio = {k: statistics.median(r[PLAIN]["seconds"] / r[k]["seconds"] for r in t["rounds"]) for k in kinds}
        t["ratios"] = ratio
        runs = [t["rounds"][0][k] for k in kinds]
        right = "; ".join(f"{r['draft_n_accepted']} of {r['draft_n']}" for r in runs)
        same = sum(r[k]["tokens"] == first["tokens"] for r in t["rounds"] for k in kinds)
        print(
            f"| {t['category']} {t['id']} | {first['n_prompt']} | {len(first['tokens'])} | "
            f"{' | '.join(f'{ratio[k]:.2f}' for k in kinds)} | {right} | "
            f"{same} of {len(t['rounds']) * len(kinds)} |"
        )
    for name, some in (("edits", [t for t in texts if t["category"] == "edit"]),
                       ("others", [t for t in texts if t["category"] != "edit"])):  # fmt: skip
        if some:
            spread = {k: [t["ratios"][k] for t in some] for k in kinds}
            print(
                f"{name}: "
                + ", ".join(f"{k} median {statistics.median(v):.2f}, worst {min(v):.2f}" for k, v in spread.items())
            )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--questions", type=int, default=14)
    p.add_argument("-n", type=int, default=64, help="tokens of an answer")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--with-draft", action="store_true")
    p.add_argument("--forms", action="store_true")
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    asked = [(a, args.n) for a in chosen(args.questions)] + [(a, N_EDIT) for a in edits()]
    if args.forms:
        asked = [(a, N_FORM) for a in forms()]
    texts: list[dict[str, Any]] = [{"category": a.category, "id": a.question_id, "rounds": []} for a, _ in asked]
    guessed = sources(args)
    if args.forms and args.rounds > 1:
        p.error("--forms with --rounds above 1 would measure texts that are written again; give --rounds 1")
    kinds = (PLAIN, *guessed)
    with ExitStack() as stack:
        duos = {kind: stack.enter_context(opened(kind)) for kind in kinds}
        for d in duos.values():
            write(d, asked[0][0], 4)
        for i in range(args.rounds):
            for j, ((a, n), text) in enumerate(zip(asked, texts, strict=True)):
                k = (i + j) % len(kinds)
                text["rounds"].append({kind: write(duos[kind], a, n) for kind in kinds[k:] + kinds[:k]})
    report(texts, guessed)
    if args.out:
        for run in (kind for t in texts for r in t["rounds"] for kind in r.values()):
            run["tokens"] = len(run["tokens"])
        record = {"machine": machine(), "command": command_of(sys.argv), "target": TARGET, "texts": texts}
        args.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
