"""A limit for the length of a model's thoughts, as the core takes it (csrc/text/thought_limit.h)."""

from __future__ import annotations

from duo import _core
from duo.options.generate import GenerateOptions
from duo.prompt.reading import THOUGHT_MARKS


def marks_of(model: _core.Model, o: GenerateOptions) -> list[_core.ThoughtMarks]:
    """Of all kinds of thoughts; none without a limit (reasoning_budget)."""
    if o["reasoning_budget"] < 0:
        return []
    said = o["reasoning_budget_message"]
    return [_core.ThoughtMarks(begin, end, model.tokenize(said + end, False, True)) for begin, end in THOUGHT_MARKS]
