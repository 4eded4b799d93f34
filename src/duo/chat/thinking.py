"""How a model thinks before it answers, as far as its chat template lets callers choose."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duo.chat.chat_template import ChatTemplate

THINKS = "enable_thinking"
EFFORT = "reasoning_effort"
PRESERVES = "preserve_reasoning"  # prompts keep the thoughts of earlier turns


def can_choose(template: ChatTemplate) -> bool:
    """Whether callers choose if the model thinks."""
    return THINKS in template.variables


def choices(on: bool | None, effort: str | None, preserves: bool | None) -> dict[str, Any]:
    """The variables that tell a template how to think. on: None: as llama-server's auto, which lets a model think that
    can. The others: None, and the effort "default": no variable."""
    values = {THINKS: True if on is None else on, EFFORT: None if effort == "default" else effort, PRESERVES: preserves}
    return {name: value for name, value in values.items() if value is not None}


def with_thinking(variables: Mapping[str, Any], template: ChatTemplate, thinking: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a template, and those choices that it knows. What the variables say already counts more."""
    return {name: value for name, value in thinking.items() if name in template.variables} | dict(variables)


def dates() -> dict[str, str]:
    """Today, by the names that templates ask for it (llama.cpp's common/chat.cpp, common_chat_extra_context)."""
    now = datetime.now()
    return {"date_string": now.strftime("%d %b %Y"), "datetime": now.strftime("%b %d %Y")}
