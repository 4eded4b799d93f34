"""How likely a draft estimates its guesses to be right, and how often they are right, by temperature.

    python benchmarks/measure_chances.py [--target T.gguf --draft D.gguf] [--questions 40] [-n 160] [--out FILE]

The target writes alone, and the draft reads the same texts. At every token the script compares the draft's two best
candidates (with the text's own noise) with the token that the target chose. "said" is the mean chance that the draft
gives a guess, "true" the share of right guesses. Filters are the defaults.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import duo
from duo import _core
from duo.measure.bench.head import command_of
from duo.measure.doctor import options
from duo.models.demo import demo_pair
from duo.options.validate import generate_options
from duo.text.job import sampling

TEMPERATURES = (0.0, 0.2, 0.5, 0.8, 1.0, 1.2)


def compare(draft: _core.Probe, d: duo.Duo, prompts: list[str], n: int, temperature: float) -> dict[str, float]:
    """Means over all tokens of the texts. A token without a second guess counts as a guess of chance 0."""
    said, true, n_tokens = [0.0, 0.0], [0, 0], 0
    for seed, prompt in enumerate(prompts):
        begin = d.tokenize(prompt)
        chosen = d.generate(begin, max_tokens=n, seed=seed, temperature=temperature, ignore_eos=True).tokens
        text = [*begin, *chosen]
        draft.decode(text)
        how = sampling(generate_options({"temperature": temperature, "ignore_eos": True}, "generate"), seed)
        for i, token in enumerate(chosen, len(begin)):
            for rank, (guess, logp) in enumerate(draft.candidates(i - 1, how, text[:i], 2)):
                said[rank] += math.exp(logp)
                true[rank] += guess == token
        n_tokens += len(chosen)
    return {
        "temperature": temperature, "tokens": n_tokens,
        "first_said": round(said[0] / n_tokens, 3), "first_true": round(true[0] / n_tokens, 3),
        "second_said": round(said[1] / n_tokens, 3), "second_true": round(true[1] / n_tokens, 3),
    }  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--target", default=str(demo_pair()[0]))
    p.add_argument("--draft", default=str(demo_pair()[1]))
    p.add_argument("--questions", type=int, default=40)
    p.add_argument("-n", type=int, default=160)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    lines = (Path(__file__).parent / "prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines][: args.questions]
    draft = _core.Probe(options(args.draft, 1, [], 512), is_draft=True)
    with duo.Duo(args.target, n_ctx=512, n_threads=1) as d:
        rows = [compare(draft, d, prompts, args.n, t) for t in TEMPERATURES]
    print("| temperature | first guess, said | true | second guess, said | true |\n|---|---|---|---|---|")
    for r in rows:
        print("| " + " | ".join(f"{r[k]}" for k in r if k != "tokens") + " |")
    if args.out:
        record = {"command": command_of(sys.argv), "questions": len(prompts), "rows": rows}
        args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
