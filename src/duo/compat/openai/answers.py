"""The dicts of one answer: what all of them say, the choices, and the figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from duo.compat.openai.shapes import (
        ChatChoice,
        ChatChunk,
        ChatChunkChoice,
        ChatCompletion,
        ChatDelta,
        ChatMessage,
        Completion,
        CompletionChoice,
        CompletionChunk,
        Fingerprint,
        Logprobs,
        Usage,
    )


class AnswerDicts:
    """All of them have the same id, time and model. unique: what the id is made of. fingerprint: of the server; empty:
    they have none, as in llama_cpp."""

    def __init__(self, model: str, unique: str, fingerprint: str = "") -> None:
        self.model, self.unique, self.created = model, unique, int(time.time())
        self._more: Fingerprint = {"system_fingerprint": fingerprint} if fingerprint else {}

    @property
    def completion_id(self) -> str:
        return f"cmpl-{self.unique}"

    def completion_chunk(self, choices: list[CompletionChoice]) -> CompletionChunk:
        """A part of a text."""
        return {
            "id": self.completion_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            **self._more,
            "choices": choices,
        }

    def completion(self, choices: list[CompletionChoice], usage: Usage) -> Completion:
        """A whole text, or several."""
        return {**self.completion_chunk(choices), "usage": usage}

    def chat_chunk(self, choices: list[ChatChunkChoice]) -> ChatChunk:
        """A part of a chat's answer."""
        return {
            "id": f"chat{self.completion_id}",
            "model": self.model,
            "created": self.created,
            "object": "chat.completion.chunk",
            **self._more,
            "choices": choices,
        }

    def chat(self, choices: list[ChatChoice], usage: Usage) -> ChatCompletion:
        """A chat's whole answer, or several."""
        return {
            "id": f"chat{self.completion_id}",
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            **self._more,
            "choices": choices,
            "usage": usage,
        }


def text_choice(index: int, text: str, finish_reason: str | None, logprobs: Logprobs | None) -> CompletionChoice:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish_reason}


# llama_cpp's choices of chats always have logprobs (None), and llama-server's only if there are some.


def delta_choice(index: int, delta: ChatDelta, finish_reason: str | None, **logprobs: Any) -> ChatChunkChoice:
    """logprobs: left out, or ChatLogprobs or None."""
    choice = {"index": index, "delta": delta, **logprobs, "finish_reason": finish_reason}
    return cast("ChatChunkChoice", choice)


def message_choice(index: int, message: ChatMessage, finish_reason: str | None, **logprobs: Any) -> ChatChoice:
    """logprobs: left out, or ChatLogprobs or None."""
    choice = {"index": index, "message": message, **logprobs, "finish_reason": finish_reason}
    return cast("ChatChoice", choice)


def finish_reason(why: str, *, called: bool = False) -> str:
    """OpenAI's. why: a text's own. called: it has calls of tools."""
    return "length" if why != "stop" else "tool_calls" if called else "stop"


def usage(n_prompt: int, n_written: int, n_cached: int | None = None) -> Usage:
    """Counts of tokens. n_cached: of the prompt, as servers tell it."""
    found: Usage = {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_written,
        "total_tokens": n_prompt + n_written,
    }
    if n_cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": n_cached}
    return found
