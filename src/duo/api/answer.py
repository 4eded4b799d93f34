"""One text on its way into the dicts of `duo.api.openai`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from duo.api.openai import (
    ChatChunk,
    ChatCompletion,
    ChatDelta,
    Completion,
    CompletionChoice,
    CompletionChunk,
    Logprobs,
    chat_logprobs,
)
from duo.text.result import TokenLogprobs

if TYPE_CHECKING:
    from duo import _core
    from duo.text.stream import Stream


class Answer:
    """A stream that becomes a Completion, or the parts of one. model: the name that the dicts carry; None: the path."""

    def __init__(self, local_model: _core.Model, stream: Stream, prompt: str, n_prompt: int, model: str | None) -> None:
        self._model, self._stream, self._prompt, self._n_prompt = local_model, stream, prompt, n_prompt
        self._offset = len(prompt)
        self._head: dict[str, Any] = {
            "id": f"cmpl-{uuid.uuid4()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": local_model.path if model is None else model,
        }

    def _piece(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", "ignore")

    def _logprobs(self, tokens: Sequence[TokenLogprobs]) -> Logprobs:
        found: Logprobs = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        for t in tokens:
            text = self._piece(t.token)
            found["tokens"].append(text)
            found["text_offset"].append(self._offset)
            found["token_logprobs"].append(t.logprob)
            found["top_logprobs"].append({self._piece(i): p for i, p in t.top} | {text: t.logprob})
            self._offset += len(text)
        return found

    def _is_text(self, token: int | None) -> bool:
        return token is not None and not self._model.is_end(token)

    def _chunk(self, text: str, logprobs: Logprobs | None, finish_reason: str | None) -> CompletionChunk:
        choice: CompletionChoice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}
        return cast("CompletionChunk", {**self._head, "choices": [choice]})

    def whole(self, *, echo: bool) -> Completion:
        """The text, when it has ended. echo: behind its prompt. Raises DuoError."""
        with self._stream as s:
            for _ in s:
                pass
            r = s.result
        kept = [t for t in r.logprobs if self._is_text(t.token)]
        text = self._prompt * echo + r.text
        n = sum(map(self._is_text, r.tokens))
        logprobs = self._logprobs(kept) if s.with_logprobs else None
        return {
            **self._chunk(text, logprobs, r.finish_reason),
            "usage": {"prompt_tokens": self._n_prompt, "completion_tokens": n, "total_tokens": self._n_prompt + n},
        }

    def parts(self) -> Iterator[CompletionChunk]:
        """The text as it comes; the last part has the finish_reason alone. Raises DuoError."""
        with self._stream as s:
            for chunk in s:
                logprobs = None
                if chunk.logprobs is not None and self._is_text(chunk.token):
                    logprobs = self._logprobs([chunk.logprobs])
                if chunk.text or logprobs is not None:
                    yield self._chunk(chunk.text, logprobs, None)
            yield self._chunk("", None, s.finish_reason)


def as_chat(completion: Completion) -> ChatCompletion:
    """A text as an answer."""
    (choice,) = completion["choices"]
    return {
        "id": "chat" + completion["id"],
        "object": "chat.completion",
        "created": completion["created"],
        "model": completion["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": choice["text"]},
                "logprobs": chat_logprobs(choice["logprobs"]),
                "finish_reason": choice["finish_reason"],
            }
        ],
        "usage": completion["usage"],
    }


def chat_chunk(of: CompletionChunk, delta: ChatDelta, logprobs: Logprobs | None, finish: str | None) -> ChatChunk:
    """A part of an answer, with the names and times of a part of a text."""
    return {
        "id": "chat" + of["id"],
        "model": of["model"],
        "created": of["created"],
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "logprobs": chat_logprobs(logprobs), "finish_reason": finish}],
    }


def as_chat_parts(parts: Iterator[CompletionChunk]) -> Iterator[ChatChunk]:
    """A text's parts as those of an answer, which begin with its role."""
    first = True
    for p in parts:
        (choice,) = p["choices"]
        if first:
            yield chat_chunk(p, {"role": "assistant"}, None, None)
        first = False
        delta: ChatDelta = {"content": choice["text"]} if choice["finish_reason"] is None else {}
        yield chat_chunk(p, delta, choice["logprobs"], choice["finish_reason"])
