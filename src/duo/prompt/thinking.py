"""Whether a model thinks before it answers, as far as its chat template lets callers choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duo.prompt.chat_template import ChatTemplate

VARIABLE = "enable_thinking"


def can_choose(template: ChatTemplate) -> bool:
    return VARIABLE in template.variables


def with_thinking(variables: Mapping[str, Any], template: ChatTemplate, on: bool | None) -> dict[str, Any]:
    """The variables of a template. on: None: as the template says. What the variables say already counts more."""
    return dict(variables) if on is None or not can_choose(template) else {VARIABLE: on, **variables}
