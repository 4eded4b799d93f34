"""Questions in Spec-Bench's format: one JSON object per line with question_id, category and turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duo.errors import BadValueError
from duo.generation.job import check_text
from duo.support.json_lines import values

BUILT_IN = Path(__file__).parent / "questions.jsonl"


@dataclass(frozen=True)
class Question:
    """One text to generate, or several that follow each other."""

    question_id: int | str
    category: str
    turns: tuple[str, ...]  # the user's turns; at least one, none empty


def _question(row: Any, where: str) -> Question:
    if not isinstance(row, dict):
        raise BadValueError(f"{where} is not a JSON object; write question_id, category and turns")
    for name in ("question_id", "category", "turns"):
        if name not in row:
            raise BadValueError(f"{where} has no {name}; write question_id, category and turns")
    name, category, turns = row["question_id"], row["category"], row["turns"]
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise BadValueError(f"{where}: question_id is {name!r}; give a number or a string")
    if not isinstance(category, str) or not category:
        raise BadValueError(f"{where}: category is {category!r}; give a word")
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
        raise BadValueError(f"{where}: turns is not a list of texts; give at least one, none empty")
    for t in turns:
        check_text(t, f"a turn in {where}")
    return Question(name, category, tuple(turns))


def read(path: Path | None = None) -> list[Question]:
    """The questions of a file in its order; without a path the built-in ones. Blank lines are skipped.

    Raises BadValueError: the file cannot be read or has no question, or a line is not a question or repeats a
    question_id.
    """
    file = BUILT_IN if path is None else path
    questions: list[Question] = []
    line_of: dict[int | str, int] = {}
    for n, where, value in values(file, "question file", "one object per line"):
        q = _question(value, where)
        if q.question_id in line_of:
            first = line_of[q.question_id]
            raise BadValueError(
                f"{where} repeats question_id {q.question_id!r} of line {first}; give each question its own"
            )
        line_of[q.question_id] = n
        questions.append(q)
    if not questions:
        raise BadValueError(f"the question file {file} has no question; write one JSON object per line")
    return questions


def choose(questions: Sequence[Question], n: int | None = None, categories: Sequence[str] = ()) -> list[Question]:
    """Chooses `n` questions (None: all) of these categories (empty: all), evenly spread.

    Raises BadValueError: unknown category.
    """
    all_categories = dict.fromkeys(q.category for q in questions)
    for c in categories:
        if c not in all_categories:
            raise BadValueError(f"no question has the category {c!r}; choose from {', '.join(all_categories)}")
    selection = [q for q in questions if not categories or q.category in categories]
    if n is None or n >= len(selection):
        return selection
    return [selection[i * len(selection) // n] for i in range(n)]
