"""The dicts of one answer: what all of them say, the choices, and the figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from duo.compat.openai import shapes


class AnswerDicts:
    """All of them have the same id, time and model. unique: what the id is made of. fingerprint: of the server; empty:
    they have none, as in llama_cpp."""

    def __init__(self, model: str, unique: str, fingerprint: str = "") -> None:
        self.model, self.unique, self.created = model, unique, int(time.time())
        self.completion_id = f"cmpl-{unique}"
        self._more = {"system_fingerprint": fingerprint} if fingerprint else {}

    def completion_chunk(self, choices: list[shapes.CompletionChoice]) -> shapes.CompletionChunk:
        """A part of a text."""
        return cast("shapes.CompletionChunk", self._dict("text_completion", self.completion_id, choices))

    def completion(self, choices: list[shapes.CompletionChoice], usage: shapes.Usage) -> shapes.Completion:
        """A whole text, or several."""
        return {**self.completion_chunk(choices), "usage": usage}

    def chat_chunk(self, choices: list[shapes.ChatChunkChoice]) -> shapes.ChatChunk:
        """A part of a chat's answer."""
        chunk = {
            "id": f"chat{self.completion_id}", "model": self.model, "created": self.created,
            "object": "chat.completion.chunk", **self._more, "choices": choices,
        }  # fmt: skip
        return cast("shapes.ChatChunk", chunk)  # keys in llama_cpp's order for chunks

    def chat(self, choices: list[shapes.ChatChoice], usage: shapes.Usage) -> shapes.ChatCompletion:
        """A chat's whole answer, or several."""
        answer = self._dict("chat.completion", f"chat{self.completion_id}", choices)
        return cast("shapes.ChatCompletion", {**answer, "usage": usage})

    def _dict(self, kind: str, name: str, choices: Any) -> dict[str, Any]:
        fields = {"id": name, "object": kind, "created": self.created, "model": self.model}
        return {**fields, **self._more, "choices": choices}


def text_choice(
    index: int, text: str, finish_reason: str | None, logprobs: shapes.Logprobs | None
) -> shapes.CompletionChoice:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish_reason}


# llama_cpp's choices of chats always have logprobs (None), and llama-server's only if there are some.


def delta_choice(
    index: int, delta: shapes.ChatDelta, finish_reason: str | None, **logprobs: Any
) -> shapes.ChatChunkChoice:
    """logprobs: left out, or ChatLogprobs or None."""
    choice = {"index": index, "delta": delta, **logprobs, "finish_reason": finish_reason}
    return cast("shapes.ChatChunkChoice", choice)


def message_choice(
    index: int, message: shapes.ChatMessage, finish_reason: str | None, **logprobs: Any
) -> shapes.ChatChoice:
    """logprobs: left out, or ChatLogprobs or None."""
    choice = {"index": index, "message": message, **logprobs, "finish_reason": finish_reason}
    return cast("shapes.ChatChoice", choice)


def finish_reason(why: str, *, called: bool = False) -> str:
    """OpenAI's. why: a text's own. called: it has calls of tools."""
    return "length" if why != "stop" else "tool_calls" if called else "stop"


def usage(n_prompt: int, n_written: int, n_cached: int | None = None) -> shapes.Usage:
    """Counts of tokens. n_cached: of the prompt, as servers tell it."""
    counts: shapes.Usage = {
        "prompt_tokens": n_prompt, "completion_tokens": n_written, "total_tokens": n_prompt + n_written,
    }  # fmt: skip
    if n_cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": n_cached}
    return counts
