"""What a chat template has a place for, found by trial renderings, as llama.cpp does (common/jinja/caps.cpp)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from duo.chat.tools_in_words import Messages
from duo.errors import BadValueError

Render = Callable[[Messages, Any], str]  # of messages and tools; raises BadValueError

# Words that no template has.
SYSTEM, TOOL, KEY, VALUE = "trial_system", "trial_tool", "trial_key", "trial_value"
PARAMETERS = {"type": "object", "properties": {"trial_parameter": {"type": "string", "description": "A word."}}}
FUNCTION = {"name": TOOL, "description": "A trial.", "parameters": {**PARAMETERS, "required": ["trial_parameter"]}}
TOOLS = [{"type": "function", "function": FUNCTION}]
SHORT_ID, OTHER_ID, LONG_ID = "trial0001", "trial0002", "call_0123456789abcdef01234567"
USER = {"role": "user", "content": "Hi"}


@dataclass(frozen=True)
class CallTraits:
    """How a template writes the calls of earlier answers."""

    shown: bool = False  # False: not at all
    objects: bool = False  # arguments are objects; False: JSON text
    only_objects: bool = False  # it refuses text
    null: bool = False  # an answer that is nothing but calls has null as content; False: an empty text
    short_ids: bool = False  # ids must have nine letters and digits
    parallel: bool = True  # an answer may have several calls


class TemplateTraits:
    """Each is found when it is first asked for. render: the template."""

    def __init__(self, render: Render) -> None:
        self._render = render

    def _rendered(self, messages: Messages, tools: Any = None) -> str | None:
        try:
            return self._render(messages, tools)
        except BadValueError:
            return None

    @cached_property
    def system(self) -> bool:
        """Whether it shows a system prompt. If it can show nothing, it is left to say why."""
        text = self._rendered([{"role": "system", "content": SYSTEM}, USER])
        return SYSTEM in text if text is not None else self._rendered([USER]) is None

    @cached_property
    def tools(self) -> bool:
        """Whether it shows tools."""
        return TOOL in (self._rendered([USER], TOOLS) or "")

    @cached_property
    def results(self) -> bool:
        """Whether it shows results of tools where it does not show their calls."""
        result = {"role": "tool", "tool_call_id": SHORT_ID, "name": TOOL, "content": VALUE}
        return VALUE in (self._rendered([USER, {"role": "assistant", "content": "Wait."}, result]) or "")

    @cached_property
    def calls(self) -> CallTraits:
        """How it shows calls."""
        value = {KEY: VALUE}
        for content in ("", None):
            by_object, by_text = (
                self._rendered(_turns(arguments, content, [SHORT_ID]), TOOLS)
                for arguments in (value, json.dumps(value))
            )
            if not _shows(by_object) and not _shows(by_text):
                continue
            # Where both show the same, the text stays as the model wrote it, so that the cache has it.
            objects = _shows(by_object) and by_object != by_text
            arguments = value if objects else json.dumps(value)
            return CallTraits(
                shown=True,
                objects=objects,
                only_objects=by_text is None,
                null=content is None,
                short_ids=self._rendered(_turns(arguments, content, [LONG_ID]), TOOLS) is None,
                parallel=self._shows_both(by_object if objects else by_text, arguments, content),
            )
        return CallTraits()

    def _shows_both(self, one: str | None, arguments: Any, content: str | None) -> bool:
        """Whether it shows two calls of one answer: some refuse them, some show the first one. one: a single call."""
        two = self._rendered(_turns(arguments, content, [SHORT_ID, OTHER_ID]), TOOLS)
        return two is not None and one is not None and two.count(VALUE) == 2 * one.count(VALUE)


def _shows(text: str | None) -> bool:
    """Whether it has the arguments as JSON or in a form of its own: not as Python writes a dict, nor quoted twice."""
    return text is not None and KEY in text and VALUE in text and f"'{KEY}'" not in text and f'\\"{KEY}' not in text


def _turns(arguments: Any, content: str | None, ids: Sequence[str]) -> Messages:
    """A conversation with a call, or with several in one answer."""
    calls = [{"id": i, "type": "function", "function": {"name": TOOL, "arguments": arguments}} for i in ids]
    results = [{"role": "tool", "tool_call_id": i, "name": TOOL, "content": "4"} for i in ids]
    answer = {"role": "assistant", "content": content, "tool_calls": calls}
    return [USER, answer, *results, {"role": "assistant", "content": "Four."}, USER]
