"""How many guesses each rule of acceptance takes, by temperature, and the most that could be taken without loss.

    python benchmarks/measure_acceptance.py [--target T.gguf --draft D.gguf] [--questions 40] [-n 160] [--out FILE]

First the target writes with each rule, and the models take turns: with one guess in a pass the script counts how often
it was accepted, with four how many tokens a pass brought. Then both models read the texts that "rejection" wrote with
one guess in a pass, and at every token the script compares what they draw from. "bound" is the mean of what the two
distributions have in common (1 - total variation): no rule that keeps the target's distribution can accept one guess
more often. "trust" is the most likely exponent of a draw's probability as its chance to be accepted
(model/acceptance.cpp). Counts, not times.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.pair_args import pair_args

import duo
from duo import _core
from duo.benchmark.bench.head import command_of
from duo.benchmark.doctor import options
from duo.generation.job import sampling
from duo.options.option import AcceptRule
from duo.options.validate import generate_options

TEMPERATURES = (0.2, 0.8, 1.0)
RULES: tuple[str, ...] = get_args(AcceptRule)
N_SHARES = 16  # tokens that a draft draws from (model/acceptance.h)


def accepted(
    d: duo.Duo, prompts: list[str], n: int, rule: str, temperature: float, n_draft: int
) -> tuple[float, float]:
    """The share of accepted first guesses, and tokens of a verification."""
    tested = taken = rounds = drafted = 0
    for seed, prompt in enumerate(prompts):
        t = d.generate(
            prompt, max_tokens=n, seed=seed, temperature=temperature, accept=rule, mode="sync", n_draft=n_draft,
            draft_tree="chain", ignore_eos=True,
        ).timings  # fmt: skip
        tested += t["draft_n_by_position"][0]
        taken += t["draft_n_accepted_by_position"][0]
        rounds += t["draft_rounds"]
        drafted += t["draft_n_accepted"]
    return taken / tested, drafted / rounds + 1.0


def compared(
    target: _core.Probe, draft: _core.Probe, texts: list[tuple[list[int], int]], temperature: float
) -> tuple[float, float]:
    """The mean overlap of what both draw from, and trust. texts: tokens, and how many of them are the prompt."""
    total, n_tokens = 0.0, 0
    likelihood = dict.fromkeys((n / 20 for n in range(1, 41)), 0.0)
    for seed, (text, n_prompt) in enumerate(texts):
        how = sampling(generate_options({"temperature": temperature, "ignore_eos": True}, "generate"), seed)
        target.decode(text)
        draft.decode(text)
        for i in range(n_prompt, len(text)):
            p, q = (dict(m.chances(i - 1, how, text[:i])) for m in (target, draft))
            best = {t: math.exp(logp) for t, logp in list(q.items())[:N_SHARES]}
            whole = sum(best.values())
            for t, share in best.items():
                x = min(share / whole, 1 - 1e-9)
                right = min(math.exp(p.get(t, -math.inf)) / x, 1.0)
                total += x * right
                for trust in likelihood:
                    chance = x**trust
                    likelihood[trust] += x * (right * math.log(chance) + (1 - right) * math.log(1 - chance))
            n_tokens += 1
    return total / n_tokens, max(likelihood, key=lambda trust: likelihood[trust])


def row_of(
    d: duo.Duo, probes: tuple[_core.Probe, _core.Probe], prompts: list[str], n: int, temperature: float
) -> dict[str, Any]:
    texts = []
    for seed, prompt in enumerate(prompts):
        begin = d.tokenize(prompt)
        chosen = d.generate(
            begin, max_tokens=n, seed=seed, temperature=temperature, accept="rejection", mode="sync", n_draft=1,
            draft_tree="chain", ignore_eos=True,
        ).tokens  # fmt: skip
        texts.append(([*begin, *chosen], len(begin)))
    bound, trust = compared(*probes, texts, temperature)
    found: dict[str, Any] = {"temperature": temperature, "bound": round(bound, 3), "trust": trust}
    for rule in RULES:
        first = accepted(d, prompts, n, rule, temperature, 1)[0]
        tokens = accepted(d, prompts, n, rule, temperature, 4)[1]
        found[rule] = {"first": round(first, 3), "tokens": round(tokens, 2)}
    return found


def main() -> None:
    args, prompts = pair_args(__doc__)
    probes = (
        _core.Probe(options(args.target, 1, [], 512)),
        _core.Probe(options(args.draft, 1, [], 512), is_draft=True),
    )
    with duo.Duo(args.target, args.draft, n_ctx=512, n_ctx_draft=512, n_threads=1, n_threads_draft=1) as d:
        rows = [row_of(d, probes, prompts, args.n, t) for t in TEMPERATURES]
    print("| temperature | bound | trust | " + " | ".join(RULES) + " |\n|---|---|---|" + "---|" * len(RULES))
    for r in rows:
        cells = (f"{r[rule]['first']:.3f}; {r[rule]['tokens']:.2f}" for rule in RULES)
        print(f"| {r['temperature']} | {r['bound']} | {r['trust']} | " + " | ".join(cells) + " |")
    if args.out:
        record = {"command": command_of(sys.argv), "questions": len(prompts), "tokens": args.n, "rows": rows}
        args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
