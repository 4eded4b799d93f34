"""/v1/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from duo.prompt.reading import Part
from duo.server.shapes.shape import FINGERPRINT, LOWEST, Event, Shape
from duo.server.text import Text
from duo.text.result import Chunk


class CompletionShape(Shape):
    """OpenAI's completions. echo: the prompt stands before the text."""

    def __init__(self, *args: Any, echo: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._echo = echo
        self._n_shown: dict[int, int] = {}  # characters, by text; offsets of log-probabilities count them

    def _head(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "model": self.name,
            "system_fingerprint": FINGERPRINT,
            "object": "text_completion",
            "id": f"cmpl-{self.unique}",
        }

    def _event(self, text: Text, content: str, finish: str | None, **more: Any) -> Event:
        fresh = self.take_fresh(text)
        choice = {
            "text": content,
            "index": text.index,
            "logprobs": self._logprobs(text, fresh),
            "finish_reason": finish,
        }
        return "", {"choices": [choice], **self._head(), **self.per_token_fields(text, fresh), **more}

    def _logprobs(self, text: Text, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        """llama-server's list, and OpenAI's four lists."""
        kept = [c.logprobs for c in chunks if c.logprobs is not None and self.is_written(c)]
        if not kept:
            return None
        tokens = [self.piece(t.token).decode("utf-8", "replace") for t in kept]
        at, offsets = self._n_shown.get(text.index, len(text.prompt)), []
        for t in tokens:
            offsets.append(at)
            at += len(t)
        self._n_shown[text.index] = at
        top = [{self.piece(i).decode("utf-8", "replace"): max(p, LOWEST) for i, p in t.top} for t in kept]
        return {
            "content": self.logprobs(kept),
            "tokens": tokens,
            "token_logprobs": [max(t.logprob, LOWEST) for t in kept],
            "top_logprobs": top,
            "text_offset": offsets,
        }

    def begin(self, text: Text) -> Iterator[Event]:
        if self._echo:
            yield self._event(text, text.prompt, None)

    def part(self, text: Text, part: Part) -> Iterator[Event]:
        yield self._event(text, part.content, None)

    def end(self, text: Text) -> Iterator[Event]:
        finish = "stop" if text.finish == "stop" else "length"
        is_last = len(self.texts) == 1
        more = {"usage": self.usage} if is_last and not self.with_usage else {}
        yield self._event(text, "", finish, **more, timings=text.timings)

    def last(self) -> Iterator[Event]:
        if self.with_usage or len(self.texts) > 1:
            yield "", {"choices": [], **self._head(), "usage": self.usage}

    def whole(self) -> dict[str, Any]:
        self._n_shown.clear()
        choices = [
            {
                "text": t.prompt * self._echo + t.text,
                "index": t.index,
                "logprobs": self._logprobs(t, t.chunks),
                "finish_reason": "stop" if t.finish == "stop" else "length",
            }
            for t in self.texts
        ]
        more: dict[str, Any] = {"timings": self.texts[0].timings}
        if self.per_token:
            more["duo"] = {"tokens": [self.origins(t.chunks) for t in self.texts]}
        return {"choices": choices, **self._head(), "usage": self.usage, **more}
