"""The questions for real models: one or two of each of seven kinds of work, from half of Spec-Bench (prompts/).

The ids were chosen by length: answers of forty tokens and more, and the shortest texts to summarise and to look up, as
all arms read each prompt anew. Long prompts have a list of their own: 650 to 1,100 tokens for Qwen. A question is one
turn, in ChatML.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from duo.benchmark.bench.questions import read

IDS = {
    "conversation": (84, 156),
    "coding": (126, 128),
    "translation": (214, 238),
    "summarization": (268, 300),
    "qa": (380, 390),
    "math_reasoning": (440, 472),
    "rag": (482, 506),
}
LONG = {"summarization": (242, 264, 258), "rag": (484, 494)}
FILE = Path(__file__).parent / "prompts/spec_bench_half.jsonl"


class Asked(NamedTuple):
    """A prompt."""

    category: str
    question_id: int
    prompt: str


def chatml(question: str) -> str:
    turns = (("system", "You are a helpful assistant."), ("user", question))
    return "".join(f"<|im_start|>{who}\n{text}<|im_end|>\n" for who, text in turns) + "<|im_start|>assistant\n"


def _read(wanted: Iterable[tuple[str, int]]) -> list[Asked]:
    turns = {q.question_id: q.turns[0] for q in read(FILE)}
    return [Asked(kind, i, chatml(turns[i])) for kind, i in wanted]


def chosen(n: int) -> list[Asked]:
    """n questions, the first of each kind before the second; n below seven: kinds spread evenly over all."""
    kinds = list(IDS)
    if n < len(kinds):
        kinds = [kinds[i * len(kinds) // n] for i in range(n)]
    return _read([(kind, IDS[kind][i]) for i in range(2) for kind in kinds][:n])


def long_ones() -> list[Asked]:
    """Long prompts, where a draft has to earn what its own reading costs."""
    return _read((kind, i) for kind, ids in LONG.items() for i in ids)
