"""A text becomes the answer of a chat: read for reasoning and calls of tools, or as the call of one tool."""

from __future__ import annotations

from collections.abc import Iterator

from duo.chat.reading import Part, joined
from duo.compat.llama_cpp.answer import CompletionAnswer, Reading
from duo.compat.openai.answers import delta_choice, finish_reason, message_choice
from duo.compat.openai.logprobs import rows_of_lists
from duo.compat.openai.messages import deltas_of, message_of
from duo.compat.openai.shapes import ChatChunk, ChatCompletion, ChatDelta, ChatMessage, Logprobs, ToolCall


class ChatAnswer:
    """A text as a ChatCompletion, or as the parts of one. reading: what finds thoughts and calls of tools in it; None:
    all of it is the answer."""

    def __init__(self, text: CompletionAnswer, reading: Reading | None) -> None:
        self._text, self._reading = text, reading

    def completion(self) -> ChatCompletion:
        """The answer, when it has ended. Raises DuoError."""
        completion = self._text.completion()
        (choice,) = completion["choices"]
        message, finish = self._message(choice["text"], choice["finish_reason"] or "")
        logprobs = rows_of_lists(choice["logprobs"])
        return self._text.dicts.chat([message_choice(0, message, finish, logprobs=logprobs)], completion["usage"])

    def _message(self, text: str, finish: str) -> tuple[ChatMessage, str]:
        """The message, and why it ended."""
        part = Part(content=text)
        if self._reading is not None:
            part = joined([*self._reading.read(), *self._reading.finish()])
        return message_of(part), finish_reason(finish, called=bool(part.calls))

    def _chunk(self, delta: ChatDelta, logprobs: Logprobs | None = None, finish: str | None = None) -> ChatChunk:
        return self._text.dicts.chat_chunk([delta_choice(0, delta, finish, logprobs=rows_of_lists(logprobs))])

    def parts(self) -> Iterator[ChatChunk]:
        """The answer as it comes, its role first. Calls come in pieces, if their arguments are a JSON object. Raises
        DuoError."""
        first, called = True, False
        for text, logprobs, finish in self._text.pieces():
            if first:
                yield self._chunk({"role": "assistant"})
            first = False
            for delta in self._deltas(text, last=finish is not None):
                yield self._chunk(delta, logprobs)
                called, logprobs = called or "tool_calls" in delta, None
            if logprobs is not None:
                yield self._chunk({"content": ""}, logprobs)
            if finish is not None:
                yield self._chunk({}, None, finish_reason(finish, called=called))

    def _deltas(self, text: str, *, last: bool) -> list[ChatDelta]:
        parts = [Part(content=text)]
        if self._reading is not None:
            parts = [*self._reading.read(), *(self._reading.finish() if last else ())]
        return [delta for part in parts for delta in deltas_of(part)]


class NamedCallAnswer(ChatAnswer):
    """The text is the arguments of one tool. llama_cpp tells them twice: in the old field and in the new one."""

    def __init__(self, text: CompletionAnswer, name: str) -> None:
        super().__init__(text, None)
        self._name = name

    def _call(self, arguments: str) -> ToolCall:
        call_id = f"call__0_{self._name}_{self._text.dicts.completion_id}"
        return {"id": call_id, "type": "function", "function": {"name": self._name, "arguments": arguments}}

    def _message(self, text: str, finish: str) -> tuple[ChatMessage, str]:
        call = self._call(text)
        message: ChatMessage = {
            "role": "assistant",
            "content": None,
            "function_call": call["function"],
            "tool_calls": [call],
        }
        return message, "tool_calls"

    def parts(self) -> Iterator[ChatChunk]:
        """The same as it comes. Raises DuoError."""
        nothing: ChatDelta = {"role": None, "content": None, "function_call": None, "tool_calls": None}
        first = True
        for text, logprobs, finish in self._text.pieces():
            if first:
                yield self._chunk({**nothing, "role": "assistant"})
            first = False
            call = self._call(text)
            indexed: ToolCall = {"index": 0, **call}
            yield self._chunk({**nothing, "function_call": call["function"], "tool_calls": [indexed]}, logprobs)
            if finish is not None:
                yield self._chunk(nothing, None, "tool_calls")
