"""Two real models, Qwen2.5-Coder 1.5B and its 0.5B draft, on seven kinds of work, beside llama.cpp's own loops.

    make models
    python -m benchmarks.run_real --questions 7 -n 64 --out FILE

--wide 6G widens the target to that size first: the same words, and the time of a larger model. Its file is kept.
Default options first, then a core for each model; greedy and at temperature 0.8. Every arm writes each question before
the next one begins, in a rotating order, and reads its prompt anew. Texts end where the model ends them. Two speeds: of
the tokens after the first pass, and of all tokens in the whole time from the request. Ratios are of the latter, because
texts of two programs may differ in length. A text of duo is compared with that of its target alone, one of llama.cpp
with that of its plain loop.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from benchmarks.llama_cpp.llama_cpp import Loop, Plain, Speculative
from benchmarks.real_questions import Asked, chosen, long_ones
from benchmarks.real_tables import ALONE, ASYNC, LLAMA, SYNC, TURNS, printed
from real_models import MODELS  # tools/real_models.py

import duo
from duo.benchmark.bench.head import command_of, machine, settings_of
from duo.cli.commands.dev import parse_size
from duo.gguf_tools.widen import SAME, widen
from duo.placement.auto_draft import add_ngrams

ROOT = Path(__file__).parents[1]
TARGET, DRAFT = "qwen2.5-coder-1.5b-q4_k_m", "qwen2.5-coder-0.5b-q4_k_m"
TEMPERATURES = (0.0, 0.8)
SEED, N_CTX = 1, 2048
PLACES = ("Default options", "A core for each model")


@dataclass
class Text:
    """One answer. Times are in seconds from the request."""

    tokens: list[int]
    n_first: int  # tokens that were known at first_s
    first_s: float
    total_s: float
    right: float | None  # share of the guesses


@dataclass
class Arm:
    name: str
    write: Callable[[str], Text]
    texts: list[Text] = field(default_factory=list)


def duo_arm(name: str, d: duo.Duo, temperature: float, n: int, **options: Any) -> Arm:
    def write(prompt: str) -> Text:
        began = time.monotonic()
        with d.stream(
            prompt, max_tokens=n, temperature=temperature, seed=SEED, cache_prompt=False, **options
        ) as stream:
            chunks = [c for c in stream if c.token is not None]
        times = [c.t_us / 1e6 - began for c in chunks]
        right = stream.timings.get("draft_acceptance") if stream.timings.get("draft_n") else None
        return Text(list(stream.result.tokens), 1, times[0], times[-1], right)

    return Arm(name, write)


def loop_arm(name: str, loop: Loop) -> Arm:
    def write(prompt: str) -> Text:
        r = loop.run(prompt)
        return Text(r.tokens, r.n_first, r.first_s, r.total_s, r.acceptance if r.n_drafted else None)

    return Arm(name, write)


def loops(
    place: str, files: tuple[Path, Path], options: dict[str, Any], lengths: list[int]
) -> Iterator[tuple[str, Plain]]:
    """llama.cpp's arms: with default options on all cores, as many threads as cores."""
    target, draft = files
    own: dict[str, Any] = {"cores": [0]} if place != PLACES[0] else {"threads": len(os.sched_getaffinity(0))}
    drafts = {"cores_draft": [1]} if place != PLACES[0] else {}
    yield LLAMA, Plain(target, **own, **options)
    for k in lengths:
        yield f"{TURNS} k={k}", Speculative(target, draft, n_draft=k, **own, **drafts, **options)


def engine_options(place: str, *, with_draft: bool) -> dict[str, Any]:
    if place == PLACES[0]:
        return {"n_ctx": N_CTX}
    own = {"n_ctx": N_CTX, "n_threads": 1, "cpu_range": "0-0"}
    return own | ({"n_threads_draft": 1, "cpu_range_draft": "1-1"} if with_draft else {})


def race(arms: list[Arm], asked: list[Asked], note: str) -> None:
    """Each question by all arms, in a rotating order. The first question is also the warm-up: the planner learns."""
    for arm in arms:
        arm.write(asked[0].prompt)
    for i, question in enumerate(asked):
        start = i % len(arms)
        for arm in arms[start:] + arms[:start]:
            arm.texts.append(arm.write(question.prompt))
        print(f"{note}, question {i + 1} of {len(asked)}", file=sys.stderr, flush=True)


def figures(arm: Arm, base: Arm, asked: list[Asked], n_prompts: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "category": q.category,
            "question": q.question_id,
            "n_prompt": n,
            "n_tokens": len(t.tokens),
            "n_first": t.n_first,
            "first_s": round(t.first_s, 4),
            "total_s": round(t.total_s, 4),
            "equal": t.tokens == b.tokens,
            "right": t.right,
        }
        for q, n, t, b in zip(asked, n_prompts, arm.texts, base.texts, strict=True)
    ]


def measure(
    place: str, files: tuple[Path, Path], asked: list[Asked], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """A cell for each temperature. The models of duo stay loaded for both."""
    target, draft = files
    lengths, syncs = ([int(k) for k in text.split(",") if k] for text in (args.lengths, args.sync_lengths))
    with ExitStack() as stack:
        alone = stack.enter_context(duo.Duo(target, **engine_options(place, with_draft=False)))
        pair = stack.enter_context(duo.Duo(target, draft, **engine_options(place, with_draft=True)))
        add_ngrams(pair, None)  # as `duo -m TARGET -md DRAFT` does
        n_prompts = [len(alone.tokenize(q.prompt, special=True)) for q in asked]
        for t in TEMPERATURES:
            options = {"n_predict": args.n, "n_ctx": N_CTX, "temp": t, "seed": SEED}
            with ExitStack() as inner:
                arms = [
                    loop_arm(name, inner.enter_context(Loop(loop)))
                    for name, loop in loops(place, files, options, lengths)
                ]
                arms.append(duo_arm(ALONE, alone, t, args.n))
                arms += [
                    duo_arm(f"{SYNC} {k}", pair, t, args.n, spec_type="draft-simple", mode="sync", n_draft=k)
                    for k in syncs
                ]
                arms.append(duo_arm(ASYNC, pair, t, args.n))
                race(arms, asked, f"{place}, T = {t:g}")
            by_name = {a.name: a for a in arms}
            bases = {a.name: by_name[LLAMA if a.name.startswith("llama.cpp") else ALONE] for a in arms}
            found = {a.name: figures(a, bases[a.name], asked, n_prompts) for a in arms}
            yield {"place": place, "temperature": t, "arms": found}


def made_wide(target: Path, size: str, folder: Path) -> Path:
    """The target's words in so many bytes. Made once. Raises DuoError."""
    folder.mkdir(parents=True, exist_ok=True)
    wide = folder / f"{target.stem}-{size}.gguf"
    if not wide.exists():
        print(f"making {wide}", file=sys.stderr, flush=True)
        widen(target, wide, size=parse_size(size), type=SAME)
    return wide


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", default=TARGET, choices=MODELS)
    p.add_argument("--draft", default=DRAFT, choices=MODELS)
    p.add_argument("--wide", metavar="SIZE", help="the target widened to so many bytes, 6G for example")
    p.add_argument("--work", type=Path, default=ROOT / "build/bench", help="folder for the widened target")
    p.add_argument("--questions", type=int, default=7, help="at most 14")
    p.add_argument("--long", action="store_true", help="prompts of 650 to 1,100 tokens instead")
    p.add_argument("-n", type=int, default=64, help="tokens of an answer, at most")
    p.add_argument("--lengths", default="2,4", help="draft lengths of llama.cpp's loop; '': none")
    p.add_argument("--sync-lengths", default="1,2,3,4", help="draft lengths of duo's turn-taking; '': none")
    p.add_argument("--place", action="append", choices=PLACES, help="default: both")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    models = [MODELS[name] for name in (args.target, args.draft)]
    if missing := [m.name for m in models if not m.is_there()]:
        sys.exit(f"there is no {' and no '.join(missing)}: run make models")
    target = made_wide(models[0].path, args.wide, args.work) if args.wide else models[0].path
    files, asked = (target, models[1].path), long_ones() if args.long else chosen(args.questions)
    cells = [cell for place in args.place or PLACES for cell in measure(place, files, asked, args)]
    print("\n\n".join(printed(cells)))
    if args.out:
        head = {"machine": machine(), "command": command_of(sys.argv), "options": settings_of(vars(args))}
        args.out.write_text(json.dumps({**head, "cells": cells}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
