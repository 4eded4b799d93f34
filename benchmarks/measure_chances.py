"""How likely a draft estimates its guesses to be right, and how often they are right, by temperature.

    python benchmarks/measure_chances.py [--target T.gguf --draft D.gguf] [--questions 40] [-n 160] [--out FILE]

The target writes alone, and the draft reads the same texts. At every token the script compares the draft's two best
candidates (with the text's own noise) with the token that the target chose. "said" is the mean chance that the draft
gives a guess, "true" the share of right guesses; "in 4" and "in 8" are shares of tokens that are among so many best
candidates. Filters are the defaults. A second table has filters that are off by
default: the share of right first guesses, of a draft that applies the filter too and of one that leaves it out.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.pair_args import pair_args

import duo
from duo import _core
from duo.benchmark.bench.head import command_of
from duo.benchmark.doctor import options
from duo.generation.job import sampling
from duo.options.validate import generate_options

N_BEST = 8
TEMPERATURES = (0.0, 0.2, 0.5, 0.8, 1.0, 1.2)
USUAL = {"temperature": 0.8}
HOT = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
# Options of the text, those of a draft that leaves the filter out.
FILTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": (USUAL, USUAL),
    "typical-p 0.9": ({**USUAL, "typical_p": 0.9}, USUAL),
    "typical-p 0.5": ({**USUAL, "typical_p": 0.5}, USUAL),
    "top-n-sigma 1": ({**USUAL, "top_n_sigma": 1.0}, USUAL),
    "top-n-sigma 1 alone, temperature 1.5": ({**HOT, "top_n_sigma": 1.0}, HOT),
    "dynamic temperature 0.8 ± 0.5": ({**USUAL, "dynatemp_range": 0.5}, USUAL),
    "DRY 0.8": ({**USUAL, "dry_multiplier": 0.8}, USUAL),
    "XTC 0.5": ({**USUAL, "xtc_probability": 0.5}, USUAL),
    "XTC 1": ({**USUAL, "xtc_probability": 1.0}, USUAL),
}


def compare(
    draft: _core.Probe, d: duo.Duo, prompts: list[str], n: int, of_text: dict[str, Any], of_draft: dict[str, Any]
) -> dict[str, float]:
    """Means over all tokens of the texts. A token without a second guess counts as a guess of chance 0."""
    said, true, n_tokens = [0.0] * N_BEST, [0] * N_BEST, 0
    for seed, prompt in enumerate(prompts):
        begin = d.tokenize(prompt)
        chosen = d.generate(begin, max_tokens=n, seed=seed, ignore_eos=True, **of_text).tokens
        text = [*begin, *chosen]
        draft.decode(text)
        how = sampling(generate_options({**of_draft, "ignore_eos": True}, "generate"), seed)
        for i, token in enumerate(chosen, len(begin)):
            for rank, (guess, logp) in enumerate(draft.candidates(i - 1, how, text[:i], N_BEST)):
                said[rank] += math.exp(logp)
                true[rank] += guess == token
        n_tokens += len(chosen)
    return {
        "temperature": of_text["temperature"], "tokens": n_tokens,
        "first_said": round(said[0] / n_tokens, 3), "first_true": round(true[0] / n_tokens, 3),
        "second_said": round(said[1] / n_tokens, 3), "second_true": round(true[1] / n_tokens, 3),
        "in_4": round(sum(true[:4]) / n_tokens, 3), "in_8": round(sum(true) / n_tokens, 3),
    }  # fmt: skip


def main() -> None:
    args, prompts = pair_args(__doc__)
    draft = _core.Probe(options(args.draft, 1, [], 512), is_draft=True)
    with duo.Duo(args.target, n_ctx=512, n_threads=1) as d:
        rows = [compare(draft, d, prompts, args.n, t, t) for t in ({"temperature": t} for t in TEMPERATURES)]
        filters = {
            name: [compare(draft, d, prompts, args.n, of_text, o)["first_true"] for o in (of_text, without)]
            for name, (of_text, without) in FILTERS.items()
        }
    print("| temperature | first guess, said | true | second guess, said | true | in 4 | in 8 |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        print("| " + " | ".join(f"{r[k]}" for k in r if k != "tokens") + " |")
    print("\n| filter | the draft applies it | the draft leaves it out |\n|---|---|---|")
    for name, (applied, left_out) in filters.items():
        print(f"| {name} | {applied} | {left_out} |")
    if args.out:
        record = {"command": command_of(sys.argv), "questions": len(prompts), "rows": rows, "filters": filters}
        args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
