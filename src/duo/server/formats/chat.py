"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duo.chat.reading import Part
from duo.compat.openai.answers import delta_choice, finish_reason, message_choice
from duo.compat.openai.messages import deltas_of, message_of
from duo.compat.openai.shapes import ChatChoice, ChatDelta
from duo.generation.result import Chunk
from duo.server.formats.shape import AnswerFormat, Event
from duo.server.text import ServedText


class ChatShape(AnswerFormat):
    """OpenAI's chats, as llama-server writes them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._called: set[int] = set()  # texts with calls

    def _event(self, text: ServedText, delta: ChatDelta, finish: str | None = None, **more: Any) -> Event:
        fresh = self.take_fresh(text)
        chunk = self.dicts.chat_chunk([delta_choice(text.index, delta, finish, **self._logprobs(fresh))])
        return "", {**chunk, **self.per_token_fields(text, fresh), **more}

    def _logprobs(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        rows = [c.logprobs for c in chunks if c.logprobs is not None and self.is_written(c)]
        return {"logprobs": {"content": self.logprobs(rows), "refusal": None}} if rows else {}

    def begin(self, text: ServedText, **more: Any) -> Iterator[Event]:
        choice = delta_choice(text.index, {"role": "assistant", "content": None}, None)
        yield "", {**self.dicts.chat_chunk([choice]), **more}

    def progress(self, text: ServedText, figures: Mapping[str, int]) -> Iterator[Event]:
        yield from self.begin(text, prompt_progress=figures)

    def part(self, text: ServedText, part: Part) -> Iterator[Event]:
        if part.pieces:
            self._called.add(text.index)
        for delta in deltas_of(part):
            yield self._event(text, delta)

    def end(self, text: ServedText) -> Iterator[Event]:
        more = {} if self.with_usage else {"timings": text.timings}
        if len(self.texts) == 1:
            more |= self.verbose_fields()
        yield self._event(text, {}, finish_reason(text.finish, called=text.index in self._called), **more)

    def last(self) -> Iterator[Event]:
        if self.with_usage:
            more = {"timings": self.texts[-1].timings} if len(self.texts) == 1 else {}
            yield "", {**self.dicts.chat_chunk([]), "usage": self.usage, **more}

    def _choice(self, text: ServedText) -> ChatChoice:
        part = text.answer
        finish = finish_reason(text.finish, called=bool(part.calls))
        message = message_of(part)
        message |= {"refusal": None, "annotations": []}
        logprobs = self._logprobs(text.chunks) or {"logprobs": None}  # required, but may be null
        return message_choice(text.index, message, finish, **logprobs)

    def answer(self) -> dict[str, Any]:
        return {**self.dicts.chat([self._choice(t) for t in self.texts], self.usage), **self.answer_fields()}
