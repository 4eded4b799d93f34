"""Questions in Spec-Bench's form: a JSON object a line, with question_id, category and turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duo.errors import DuoError
from duo.text.job import check_text

BUILT_IN = Path(__file__).parent / "questions.jsonl"


@dataclass(frozen=True)
class Question:
    """One text to be written, or a few that follow one another."""

    question_id: int | str
    category: str
    turns: tuple[str, ...]  # what the user says each time; at least one, none empty


def _question(found: Any, where: str) -> Question:
    if not isinstance(found, dict):
        raise DuoError(f"{where} is not a JSON object; write question_id, category and turns")
    for name in ("question_id", "category", "turns"):
        if name not in found:
            raise DuoError(f"{where} has no {name}; write question_id, category and turns")
    name, category, turns = found["question_id"], found["category"], found["turns"]
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise DuoError(f"{where}: question_id is {name!r}; give a number or a string")
    if not isinstance(category, str) or not category:
        raise DuoError(f"{where}: category is {category!r}; give a word")
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
        raise DuoError(f"{where}: turns is not a list of texts; give at least one, none empty")
    for t in turns:
        check_text(t, f"a turn in {where}")
    return Question(name, category, tuple(turns))


def read(path: Path | None = None) -> list[Question]:
    """The questions of a file, in its order; without a path the built-in ones. Blank lines do not count.

    Raises DuoError: the file cannot be read, holds none, or a line is no question or repeats another's question_id.
    """
    file = BUILT_IN if path is None else path
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as e:
        raise DuoError(f"the question file {file} cannot be read ({e.strerror}); check the path") from None
    except UnicodeDecodeError as e:
        raise DuoError(f"the question file {file} is not UTF-8 (byte {e.start}); convert it") from None
    questions: list[Question] = []
    line_of: dict[int | str, int] = {}
    # Not splitlines(): a JSON string may hold U+2028, which that takes for a line end.
    for n, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {n} of {file}"
        try:
            q = _question(json.loads(line), where)
        except (ValueError, RecursionError) as e:
            raise DuoError(f"{where} is not JSON ({getattr(e, 'msg', e)}); write one object a line") from None
        if q.question_id in line_of:
            first = line_of[q.question_id]
            raise DuoError(f"{where} repeats question_id {q.question_id!r} of line {first}; number them apart")
        line_of[q.question_id] = n
        questions.append(q)
    if not questions:
        raise DuoError(f"the question file {file} holds no question; write one JSON object a line")
    return questions


def choose(questions: Sequence[Question], n: int | None = None, categories: Sequence[str] = ()) -> list[Question]:
    """Of these categories (none given: all) `n` questions: the first of each of n equal stretches. None: all.

    Raises DuoError for a category that no question has.
    """
    known = dict.fromkeys(q.category for q in questions)
    for c in categories:
        if c not in known:
            raise DuoError(f"no question is of category {c!r}; there are: {', '.join(known)}")
    found = [q for q in questions if not categories or q.category in categories]
    if n is None or n >= len(found):
        return found
    return [found[i * len(found) // n] for i in range(n)]
