"""How often a draft head's guess is the target's next token, by the age of the target's hidden states that it has.

    python -m benchmarks.measure_head [--target T.gguf --head H.gguf] [--draft D.gguf] [--questions 40] [--out FILE]

The target writes greedily, and the head reads the same texts. At age 0 a row is made of the target's state of the token
before it. At age 1 that token's state is the head's own, at age 2 those of two tokens, and so on, as in drafting ahead
of the target. "Shifted" rows get the state of one token earlier than they should: what a head loses then is what the
states are worth. Tokens per pass: 1 and the chain of right guesses from each token on, at most 5. The draft model is
compared by the same measure.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import duo
from duo import _core
from duo.benchmark.bench.head import command_of
from duo.benchmark.doctor import options
from duo.models.demo import demo_pair
from duo.models.header import read_header

N_AGES = 8
CHAIN = 5
N_CTX = 512
N_PASS = 64  # rows of a head's pass at most

Rows = npt.NDArray[np.float32]
Right = npt.NDArray[np.bool_]


@dataclass
class Text:
    tokens: list[int]
    first: int  # index of the first token that the target wrote

    def guessed(self, logits: Rows, index: int) -> bool:
        """Whether the best token of a row is the text's at that index."""
        return int(logits.argmax()) == self.tokens[index]


def encoded(head: _core.Probe, features: Rows) -> Rows:
    return np.concatenate([head.encode(features[i : i + N_PASS]) for i in range(0, len(features), N_PASS)])


def rows_of(head: _core.Probe, tokens: list[int], pos: int, states: Rows) -> tuple[Rows, Rows]:
    """Logits and states of the rows (tokens[i], states[i]) at positions from pos on."""
    logits, own = [], []
    for i in range(0, len(tokens), N_PASS):
        head.decode(tokens[i : i + N_PASS], pos + i, states[i : i + N_PASS])
        logits.append(head.logits())
        own.append(head.states())
    return np.concatenate(logits), np.concatenate(own)


def by_age(head: _core.Probe, text: Text, features: Rows, n_ages: int = N_AGES) -> Right:
    """[tokens that the target wrote][ages]: whether the guess is right. Rows near the text's end have fewer ages."""
    states = encoded(head, features)
    logits, own = rows_of(head, text.tokens[1:-1], 1, states[:-2])
    n = len(text.tokens)
    right = np.zeros((n - text.first, n_ages), np.bool_)
    for i in range(n - 1, text.first - 1, -1):  # backwards: each chain replaces the rows behind it
        right[i - text.first, 0] = text.guessed(logits[i - 2], i)
        state = own[i - 2 : i - 1]
        for age in range(1, min(n_ages, n - i)):
            head.decode([text.tokens[i - 1 + age]], i - 1 + age, state)
            state = head.states()
            right[i - text.first, age] = text.guessed(head.logits()[0], i + age)
    return right


def shifted(head: _core.Probe, text: Text, features: Rows) -> Right:
    """[tokens that the target wrote]: whether guesses are right that are made of the states of one token earlier."""
    logits, _ = rows_of(head, text.tokens[2:-1], 2, encoded(head, features)[:-3])
    return np.array([text.guessed(logits[i - 3], i) for i in range(max(text.first, 3), len(text.tokens))])


def per_pass(right: Right) -> float:
    """Tokens of a pass with a chain of guesses, from each token on."""
    chains = np.cumprod(right[: len(right) - CHAIN + 1, :CHAIN], axis=1)
    return 1.0 + float(chains.sum(1).mean())


def drafted(draft: _core.Probe, text: Text) -> Right:
    """As by_age, of a draft model, which has no age: every column is that of the token."""
    draft.decode(text.tokens[:-1])
    logits = draft.logits()
    one = np.array([text.guessed(logits[i - 1], i) for i in range(text.first, len(text.tokens))])
    return np.stack([np.pad(one[age:], (0, age)) for age in range(CHAIN)], axis=1)


def target_probe(target: str, head: str) -> _core.Probe:
    """It gives what the head reads. Passes may be as long as a text."""
    o = whole_texts(target)
    o.feature_layers = list(read_header(head).values["eagle3.target_layers"])
    return _core.Probe(o)


def draft_probe(path: str) -> _core.Probe:
    return _core.Probe(whole_texts(path), is_draft=True)


def whole_texts(path: str) -> _core.ModelOptions:
    o = options(path, 1, [], N_CTX)
    o.n_batch = o.n_ubatch = N_CTX
    return o


def texts(d: duo.Duo, prompts: list[str], n: int) -> list[Text]:
    found = []
    for prompt in prompts:
        begin = d.tokenize(prompt)
        new = d.generate(begin, max_tokens=n, temperature=0, ignore_eos=True).tokens
        found.append(Text([*begin, *new], len(begin)))
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", default=str(demo_pair()[0]))
    p.add_argument("--head", default=str(demo_pair()[0].with_name("duo-demo-eagle3-q8_0.gguf")))
    p.add_argument("--draft", default=str(demo_pair()[1]))
    p.add_argument("--questions", type=int, default=40)
    p.add_argument("-n", type=int, default=96)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    lines = (Path(__file__).parent / "prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines][: args.questions]
    with duo.Duo(args.target, n_ctx=N_CTX, n_threads=1) as d:
        written = texts(d, prompts, args.n)
    reader = target_probe(args.target, args.head)
    head, draft = draft_probe(args.head), draft_probe(args.draft)
    ages, moved, compared = [], [], []
    for text in written:
        reader.decode(text.tokens)
        features = reader.features()
        ages.append(by_age(head, text, features))
        moved.append(shifted(head, text, features))
        compared.append(drafted(draft, text))
    by_position: list[Any] = []
    for age in range(N_AGES):
        of_age = np.concatenate([x[: len(x) - age, age] for x in ages])
        by_position.append(round(float(of_age.mean()), 3))
    found = {
        "command": command_of(sys.argv),
        "tokens": sum(map(len, ages)),
        "right_by_age": by_position,
        "right_shifted": round(float(np.concatenate(moved).mean()), 3),
        "right_draft": round(float(np.concatenate([x[:, 0] for x in compared]).mean()), 3),
        "tokens_per_pass": round(float(np.mean([per_pass(x) for x in ages])), 3),
        "tokens_per_pass_draft": round(float(np.mean([per_pass(x) for x in compared])), 3),
    }
    print(json.dumps(found, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
