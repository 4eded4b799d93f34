"""Texts become answers of a chat: plain, read for reasoning and calls of tools, or as the call of one tool."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from duo.chat.call_pieces import CallPiece
from duo.chat.reading import AnswerReader, CallReader, Part, joined
from duo.chat.tool_calls import Call
from duo.compat.llama_cpp.answer import CompletionAnswer, Reading
from duo.compat.llama_cpp.openai import (
    ChatChunk,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    Completion,
    CompletionChunk,
    FunctionCall,
    FunctionCallPart,
    Logprobs,
    ToolCall,
    ToolCallPart,
    chat_logprobs,
)


def _answer(completion: Completion, message: ChatMessage, finish_reason: str | None) -> ChatCompletion:
    (choice,) = completion["choices"]
    return {
        "id": "chat" + completion["id"],
        "object": "chat.completion",
        "created": completion["created"],
        "model": completion["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": chat_logprobs(choice["logprobs"]),
                "finish_reason": finish_reason,
            }
        ],
        "usage": completion["usage"],
    }


def as_chat(completion: Completion) -> ChatCompletion:
    """A text as an answer."""
    (choice,) = completion["choices"]
    return _answer(completion, {"role": "assistant", "content": choice["text"]}, choice["finish_reason"])


def _chunk(of: CompletionChunk, delta: ChatDelta, logprobs: Logprobs | None, finish: str | None) -> ChatChunk:
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
            yield _chunk(p, {"role": "assistant"}, None, None)
        first = False
        delta: ChatDelta = {"content": choice["text"]} if choice["finish_reason"] is None else {}
        yield _chunk(p, delta, choice["logprobs"], choice["finish_reason"])


# ---- reasoning and calls


def call_id(made: str) -> str:
    """The model's own, or a new one."""
    return made or f"call_{uuid.uuid4().hex[:24]}"


def tool_call(call: Call) -> ToolCall:
    """A whole call."""
    function: FunctionCall = {"name": call.name, "arguments": call.arguments}
    return {"id": call_id(call.id), "type": "function", "function": function}


def tool_call_part(p: CallPiece) -> ToolCallPart:
    """A call while it is written."""
    if not p.name:
        return {"index": p.index, "function": {"arguments": p.arguments}}
    function: FunctionCallPart = {"name": p.name, "arguments": p.arguments}
    return {"index": p.index, "id": call_id(p.id), "type": "function", "function": function}


def _finish(finish_reason: str | None, calls: Any) -> str | None:
    return "tool_calls" if calls and finish_reason == "stop" else finish_reason


def as_read(answer: CompletionAnswer, reader: AnswerReader | CallReader) -> ChatCompletion:
    """A text as an answer with reasoning_content and tool_calls of its own. Raises DuoError."""
    completion = answer.whole(echo=False)
    said = joined([*reader.feed(answer.spelled.take()), *reader.finish()])
    calls = [tool_call(c) for c in said.calls]
    message: ChatMessage = {"role": "assistant", "content": said.content or (None if calls else "")}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if calls:
        message["tool_calls"] = calls
    return _answer(completion, message, _finish(completion["choices"][0]["finish_reason"], calls))


def _deltas(part: Part) -> Iterator[ChatDelta]:
    if part.reasoning:
        yield {"reasoning_content": part.reasoning}
    if part.content:
        yield {"content": part.content}
    for piece in part.pieces:
        yield {"tool_calls": [tool_call_part(piece)]}


def as_read_parts(answer: CompletionAnswer, reading: Reading) -> Iterator[ChatChunk]:
    """The same as it comes. Calls come in pieces, if their arguments are a JSON object."""
    called, first = False, True
    for p in answer.parts():
        (choice,) = p["choices"]
        last = choice["finish_reason"] is not None
        if first:
            yield _chunk(p, {"role": "assistant"}, None, None)
        first = False
        parts = reading.read()
        logprobs = choice["logprobs"]
        for part in [*parts, *(reading.finish() if last else ())]:
            for delta in _deltas(part):
                yield _chunk(p, delta, logprobs, None)
                logprobs = None
            called = called or bool(part.pieces)
        if last:
            yield _chunk(p, {}, None, _finish(choice["finish_reason"], called))
        elif logprobs is not None:
            yield _chunk(p, {}, logprobs, None)


# ---- one tool by its name: the text is its arguments


def _call_of(name: str, of: CompletionChunk, text: str) -> ToolCall:
    return {"id": f"call__0_{name}_{of['id']}", "type": "function", "function": {"name": name, "arguments": text}}


def as_call(completion: Completion, name: str) -> ChatCompletion:
    """A text as the arguments of a tool, in llama_cpp's shape: the old field and the new one."""
    call = _call_of(name, completion, completion["choices"][0]["text"])
    message: ChatMessage = {
        "role": "assistant",
        "content": None,
        "function_call": call["function"],
        "tool_calls": [call],
    }
    return _answer(completion, message, "tool_calls")


def as_call_parts(parts: Iterator[CompletionChunk], name: str) -> Iterator[ChatChunk]:
    """The same as it comes."""
    nothing: ChatDelta = {"role": None, "content": None, "function_call": None, "tool_calls": None}
    first = True
    for p in parts:
        if first:
            yield _chunk(p, {**nothing, "role": "assistant"}, None, None)
        first = False
        (choice,) = p["choices"]
        call = _call_of(name, p, choice["text"])
        indexed: ToolCall = {"index": 0, **call}
        delta: ChatDelta = {**nothing, "function_call": call["function"], "tool_calls": [indexed]}
        yield _chunk(p, delta, choice["logprobs"], None)
        if choice["finish_reason"] is not None:
            yield _chunk(p, nothing, None, "tool_calls")
