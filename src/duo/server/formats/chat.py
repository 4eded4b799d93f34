"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duo.chat.reading import Part
from duo.compat.llama_cpp.chat_answer import tool_call, tool_call_part
from duo.generation.result import Chunk
from duo.server.formats.shape import FINGERPRINT, AnswerFormat, Event
from duo.server.text import ServedText


def finish_of(text: ServedText, *, called: bool) -> str:
    """OpenAI's reason."""
    return "length" if text.finish != "stop" else "tool_calls" if called else "stop"


class ChatShape(AnswerFormat):
    """OpenAI's chats, as llama-server writes them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._called: set[int] = set()  # texts with calls

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "created": self.created,
            "id": f"chatcmpl-{self.unique}",
            "model": self.name,
            "system_fingerprint": FINGERPRINT,
            "object": kind,
        }

    def _event(self, text: ServedText, delta: dict[str, Any], finish: str | None, **more: Any) -> Event:
        fresh = self.take_fresh(text)
        choice: dict[str, Any] = {"finish_reason": finish, "index": text.index, "delta": delta}
        if logprobs := self._logprobs(fresh):
            choice["logprobs"] = logprobs
        return "", {"choices": [choice], **self._head("chat.completion.chunk"), **self.per_token_fields(text, fresh),
                    **more}  # fmt: skip

    def _logprobs(self, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        found = [c.logprobs for c in chunks if c.logprobs is not None and self.is_written(c)]
        return {"content": self.logprobs(found), "refusal": None} if found else None

    def begin(self, text: ServedText) -> Iterator[Event]:
        choice = {"finish_reason": None, "index": text.index, "delta": {"role": "assistant", "content": None}}
        yield "", {"choices": [choice], **self._head("chat.completion.chunk")}

    def progress(self, text: ServedText, found: Mapping[str, int]) -> Iterator[Event]:
        for name, data in self.begin(text):
            yield name, {**data, "prompt_progress": found}

    def part(self, text: ServedText, part: Part) -> Iterator[Event]:
        if part.reasoning:
            yield self._event(text, {"reasoning_content": part.reasoning}, None)
        if part.content:
            yield self._event(text, {"content": part.content}, None)
        for piece in part.pieces:
            self._called.add(text.index)
            yield self._event(text, {"tool_calls": [tool_call_part(piece)]}, None)

    def end(self, text: ServedText) -> Iterator[Event]:
        more = {} if self.with_usage else {"timings": text.timings}
        if len(self.texts) == 1:
            more |= self.verbose_fields()
        yield self._event(text, {}, finish_of(text, called=text.index in self._called), **more)

    def last(self) -> Iterator[Event]:
        if self.with_usage:
            more = {"timings": self.texts[-1].timings} if len(self.texts) == 1 else {}
            yield "", {"choices": [], **self._head("chat.completion.chunk"), "usage": self.usage, **more}

    def _choice(self, text: ServedText) -> dict[str, Any]:
        said = text.whole
        message: dict[str, Any] = {"role": "assistant", "content": said.content or (None if said.calls else "")}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [tool_call(c) for c in said.calls]
        found = {"finish_reason": finish_of(text, called=bool(said.calls)), "index": text.index, "message": message}
        if logprobs := self._logprobs(text.chunks):
            found["logprobs"] = logprobs
        return found

    def whole(self) -> dict[str, Any]:
        more: dict[str, Any] = {"timings": self.texts[0].timings, **self.verbose_fields()}
        if self.per_token:
            more["duo"] = {"tokens": [self.origins(t.chunks) for t in self.texts]}
        choices = [self._choice(t) for t in self.texts]
        return {"choices": choices, **self._head("chat.completion"), "usage": self.usage, **more}
