"""The questions for real models: one or two of each of seven kinds of work, from half of Spec-Bench (prompts/).

The ids were chosen by length: answers of forty tokens and more, and the shortest texts to summarise and to look up, as
all arms read each prompt anew. A question is one turn, in ChatML.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from duo.measure.bench.questions import read

IDS = {
    "conversation": (84, 156),
    "coding": (126, 128),
    "translation": (214, 238),
    "summarization": (268, 300),
    "qa": (380, 390),
    "math_reasoning": (440, 472),
    "rag": (482, 506),
}
FILE = Path(__file__).parent / "prompts/spec_bench_half.jsonl"


class Asked(NamedTuple):
    """A prompt."""

    category: str
    question_id: int
    prompt: str


def chatml(question: str) -> str:
    turns = (("system", "You are a helpful assistant."), ("user", question))
    return "".join(f"<|im_start|>{who}\n{text}<|im_end|>\n" for who, text in turns) + "<|im_start|>assistant\n"


def chosen(n: int) -> list[Asked]:
    """n questions, the first of each kind before the second; n below seven: kinds spread evenly over all."""
    turns = {q.question_id: q.turns[0] for q in read(FILE)}
    kinds = list(IDS)
    if n < len(kinds):
        kinds = [kinds[i * len(kinds) // n] for i in range(n)]
    wanted = [(kind, IDS[kind][i]) for i in range(2) for kind in kinds][:n]
    return [Asked(kind, i, chatml(turns[i])) for kind, i in wanted]
