"""What the model said in a chat, whole as a message, and while it is written as its parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duo.chat.reading import Part
    from duo.chat.tool_calls import Call, CallPiece
    from duo.compat.openai import shapes


def call_id(own_id: str) -> str:
    """The model's own, or a new one."""
    import uuid

    return own_id or f"call_{uuid.uuid4().hex[:24]}"


def tool_call(call: Call) -> shapes.ToolCall:
    """A complete call."""
    function: shapes.FunctionCall = {"name": call.name, "arguments": call.arguments}
    return {"id": call_id(call.id), "type": "function", "function": function}


def tool_call_part(p: CallPiece) -> shapes.ToolCallPart:
    """A part of a call that is being written."""
    if not p.name:
        return {"index": p.index, "function": {"arguments": p.arguments}}
    function: shapes.FunctionCallPart = {"name": p.name, "arguments": p.arguments}
    return {"index": p.index, "id": call_id(p.id), "type": "function", "function": function}


def message_of(part: Part) -> shapes.ChatMessage:
    """The message of a complete answer."""
    message: shapes.ChatMessage = {"role": "assistant", "content": part.content or (None if part.calls else "")}
    if part.reasoning:
        message["reasoning_content"] = part.reasoning
    if part.calls:
        message["tool_calls"] = [tool_call(c) for c in part.calls]
    return message


def deltas_of(part: Part) -> Iterator[shapes.ChatDelta]:
    """The deltas of a part of an answer."""
    if part.reasoning:
        yield {"reasoning_content": part.reasoning}
    if part.content:
        yield {"content": part.content}
    for piece in part.pieces:
        yield {"tool_calls": [tool_call_part(piece)]}
