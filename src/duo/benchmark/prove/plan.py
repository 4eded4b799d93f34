"""What is asked: the prompts, their long and sampled versions, calls of a tool, answers in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from duo.benchmark.bench.questions import read
from duo.benchmark.prompt_file import prompt_lines
from duo.errors import BadValueError

Kind = Literal["greedy", "sampled", "long", "call", "schema"]
CHATS: tuple[Kind, ...] = ("call", "schema")
TEMPERATURE = 0.8  # of sampled texts
N_LONG = 3000  # characters of a long prompt: some 700 tokens, so it is read in more than one batch
DAYS = ("monday", "friday", "sunday")


class Item(NamedTuple):
    """One text that is asked for. cancel_after: it is cancelled after so many tokens; None: it is written whole."""

    kind: Kind
    i: int  # of the prompt
    cancel_after: int | None = None

    @property
    def key(self) -> tuple[Kind, int]:
        """The key of the reference that the text is compared with."""
        return self.kind, self.i


@dataclass(frozen=True)
class ProofPlan:
    """counts: numbers of texts at once, 1 among them. n_tokens: most tokens of a text without a form."""

    prompts: tuple[str, ...]
    n_tokens: int
    seed: int
    counts: tuple[int, ...]

    def items(self, kind: Kind) -> tuple[Item, ...]:
        """One for each prompt; of long prompts a quarter, of chats half as many."""
        n = len(self.prompts)
        n = {"long": max(1, n // 4), "call": max(1, n // 2), "schema": max(1, n // 2)}.get(kind, n)
        return tuple(Item(kind, i) for i in range(n))

    def prompt(self, item: Item) -> str:
        """The prompt of a text that is no chat."""
        if item.kind != "long":
            return self.prompts[item.i]
        text, i = "", item.i
        while len(text) < N_LONG:
            text += self.prompts[i % len(self.prompts)] + "\n\n"
            i += 1
        return text + self.prompts[item.i]

    def messages(self, item: Item) -> list[dict[str, str]]:
        """The messages of a chat."""
        i = item.i
        where = "outside" if i % 2 else "inside"
        request = f"Book a table for {2 + i % 7} guests on {DAYS[i % 3]}, in the name of Miller, {where}."
        how = "" if item.kind == "call" else " Answer with the booking as JSON."
        return [{"role": "user", "content": f"{self.prompts[i]}\n\n{request}{how}"}]

    def sampling(self, item: Item) -> dict[str, Any]:
        """temperature and, where it matters, seed."""
        if item.kind != "sampled":
            return {"temperature": 0.0}
        return {"temperature": TEMPERATURE, "seed": self.seed + item.i}


def prompts_of(path: Path | None, n: int | None) -> tuple[str, ...]:
    """The prompts of a file: one on each line, or with the suffix .jsonl the first turns of questions in Spec-Bench's
    format; None: those that come with duo. n: how many, spread over the file; where there are fewer, two at a time are
    joined to more.

    Raises BadValueError: the file cannot be read, or there are not so many prompts.
    """
    prompts = prompt_lines(path) if path is not None and path.suffix != ".jsonl" else [q.turns[0] for q in read(path)]
    prompts = list(dict.fromkeys(prompts))
    if n is not None and n > len(prompts) ** 2:
        raise BadValueError(
            f"--n-prompts is {n}, but only {len(prompts) ** 2} can be made of {len(prompts)}; give more prompts"
        )
    return tuple(prompts if n is None else _joined(prompts, n))


def _joined(prompts: Sequence[str], n: int) -> list[str]:
    """n prompts, spread evenly over them; or all, and then pairs of them."""
    if n <= len(prompts):
        return [prompts[i * len(prompts) // n] for i in range(n)]
    shifts = range(1, len(prompts))
    pairs = (f"{a}\n\n{prompts[(i + shift) % len(prompts)]}" for shift in shifts for i, a in enumerate(prompts))
    return [*prompts, *islice(pairs, n - len(prompts))]
