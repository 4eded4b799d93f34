"""What comes to the blocks of an answer: the form of Anthropic's messages and of OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterator

from duo.chat.reading import Part
from duo.chat.tool_calls import CallPiece

Kinds = tuple[str, str, str]  # what the format calls a thought, a text and a call


def block_deltas(part: Part, kinds: Kinds) -> Iterator[tuple[str, str, CallPiece | None]]:
    """Kinds of blocks, and what comes to them; with a piece that begins a call: it is a new block."""
    thought, text, call = kinds
    if part.reasoning:
        yield thought, part.reasoning, None
    if part.content:
        yield text, part.content, None
    for piece in part.pieces:
        yield call, piece.arguments, piece if piece.name else None
