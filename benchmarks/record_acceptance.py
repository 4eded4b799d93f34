"""Which guesses of a real draft are right, token by token: tests/cpp/test_planner_traces.cpp replays them.

    make models
    python -m benchmarks.record_acceptance --out tests/cpp/acceptance.txt

The target writes an answer to each of the questions of run_real.py alone, greedy and at temperature 0.8, and the draft
reads the same text. For each token: what the draft says of its two best guesses (percent), and which of them is the
target's token. After a right guess, the next word is the guess for the next token. So a trace also tells how long a
chain of right guesses would be.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from benchmarks.real_questions import chosen
from benchmarks.run_real import DRAFT, MODELS, N_CTX, SEED, TARGET, TEMPERATURES

import duo
from duo import _core
from duo.benchmark.doctor import options
from duo.generation.job import sampling
from duo.options.validate import generate_options

NEITHER = "-"
HEAD = (
    "# Qwen2.5-Coder-1.5B-Instruct Q4_K_M and its 0.5B draft: for each token of an answer, what the draft says of its",
    "# two best guesses (percent), and which one is right (1, 2 or neither). n: tokens of the prompt. Made by",
    "# benchmarks/record_acceptance.py.",
)


def guesses(draft: _core.Probe, prompt: list[int], answer: list[int], temperature: float) -> list[str]:
    """One word for each token of the answer, such as 83/9:1."""
    text = [*prompt, *answer]
    draft.decode(text)
    how = sampling(generate_options({"temperature": temperature}, "generate"), SEED)
    words = []
    for i, token in enumerate(answer, len(prompt)):
        best = [*draft.candidates(i - 1, how, text[:i], 2), (-1, -math.inf)][:2]
        said = "/".join(str(round(100 * math.exp(logp))) for _, logp in best)
        right = next((str(rank) for rank, (guess, _) in enumerate(best, 1) if guess == token), NEITHER)
        words.append(f"{said}:{right}")
    return words


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--questions", type=int, default=14, help="at most 14")
    p.add_argument("-n", type=int, default=96, help="tokens of an answer, at most")
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    lines = [*HEAD]
    draft = _core.Probe(options(MODELS[DRAFT].path, 1, [], N_CTX), is_draft=True)
    with duo.Duo(MODELS[TARGET].path, n_ctx=N_CTX) as d:
        for temperature in TEMPERATURES:
            for q in chosen(args.questions):
                prompt = d.tokenize(q.prompt, special=True)
                answer = list(d.generate(prompt, max_tokens=args.n, temperature=temperature, seed=SEED).tokens)
                name = f"{q.category}-{q.question_id} T={temperature:g} n={len(prompt)}"
                lines.append(f"{name} {' '.join(guesses(draft, prompt, answer, temperature))}")
    args.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
