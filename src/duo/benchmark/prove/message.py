"""An answer in a chat in OpenAI's shape, whole or in the pieces of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duo.benchmark.prove.text import ProvedText


class Message:
    """What the pieces of a stream make."""

    def __init__(self) -> None:
        self._thoughts, self._content, self._finish = "", "", ""
        self._calls: dict[int, list[str]] = {}  # name and arguments by index

    def add(self, choice: Mapping[str, Any]) -> None:
        """A piece, or a whole answer. What has another shape counts as empty."""
        part = _object(choice.get("delta") or choice.get("message"))
        self._thoughts += _text(part.get("reasoning_content") or part.get("reasoning"))
        self._content += _text(part.get("content"))
        self._finish = _text(choice.get("finish_reason")) or self._finish
        calls = part.get("tool_calls")
        for at, sent in enumerate(calls if isinstance(calls, list) else ()):
            index, function = _object(sent).get("index"), _object(_object(sent).get("function"))
            call = self._calls.setdefault(index if isinstance(index, int) else at, ["", ""])
            call[0] = call[0] or _text(function.get("name"))
            call[1] += _text(function.get("arguments"))

    @property
    def text(self) -> ProvedText:
        """Thoughts, content and calls as one text. The first call's arguments have to parse, or without a call all of
        the content."""
        calls = [self._calls[i] for i in sorted(self._calls)]
        text = self._thoughts + self._content + "".join(f"{name}({arguments})" for name, arguments in calls)
        return ProvedText(text, is_cut=self._finish == "length", arguments=calls[0][1] if calls else self._content)


def text_of_choice(choice: Mapping[str, Any]) -> ProvedText:
    """An answer that was not streamed."""
    message = Message()
    message.add(choice)
    return message.text


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
