"""One streamed answer, as it arrives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from duo.support.wording import quoted

DONE = "[DONE]"


class BadStream(Exception):  # noqa: N818 - becomes a DuoError with the server's name
    """What is wrong with the stream; continues the words "the server"."""


class StreamedAnswer:
    """Reads the events of /v1/completions and /v1/chat/completions. Times are seconds on the caller's clock.

    on_choice: called with each choice of an event, for what is not kept here (calls of tools).
    """

    def __init__(self, on_choice: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        self._on_choice = on_choice
        self.text = ""  # thoughts included, because usage counts them
        self.first_at: float | None = None  # the first text; the role of a chat is none
        self.last_at: float | None = None
        self.n_chunks = 0  # with text
        self.usage_tokens: int | None = None
        self.timings: Mapping[str, Any] = {}  # llama-server's and duo's
        self.is_whole = False  # the end has come

    def take(self, name: str, data: str, now: float) -> None:
        """Raises BadStream: it is no JSON, no answer, or an error."""
        if data.strip() == DONE:
            self.is_whole = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise BadStream(f"sent an event that is not JSON: {quoted(data, 80)}") from None
        if not isinstance(event, dict):
            raise BadStream(f"sent an event that is no object: {quoted(data, 80)}")
        if name == "error" or event.get("error"):
            raise BadStream(f"broke off a text with an error: {message_of(event)}")
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(choice, now)
                if self._on_choice is not None:
                    self._on_choice(choice)
        usage, timings = event.get("usage"), event.get("timings")
        n = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(n, int) and n >= 0:
            self.usage_tokens = n  # some servers send it with every chunk: the last one counts
        if isinstance(timings, dict):
            self.timings = timings

    def _choice(self, choice: Mapping[str, Any], now: float) -> None:
        delta = choice.get("delta")
        of_chat = delta if isinstance(delta, dict) else {}
        names = ("reasoning_content", "reasoning", "content")
        pieces = [choice.get("text"), *(of_chat.get(name) for name in names)]
        if piece := "".join(p for p in pieces if isinstance(p, str)):
            self.text += piece
            self.n_chunks += 1
            self.last_at = now
            if self.first_at is None:
                self.first_at = now
        if choice.get("finish_reason"):
            self.is_whole = True


def message_of(body: Any) -> str:
    """Of an error in OpenAI's shape, or in another one; cut after 200 characters, without control characters."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return quoted(message)
