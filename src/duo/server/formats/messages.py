"""/v1/messages: Anthropic's answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from duo.chat.reading import Part
from duo.chat.tool_calls import CallPiece
from duo.server.errors import ApiError
from duo.server.formats.block_deltas import block_deltas
from duo.server.formats.shape import AnswerFormat, Event
from duo.server.text import ServedText

KINDS = ("thinking", "text", "tool_use")
DELTAS = {"thinking": "thinking_delta", "text": "text_delta", "tool_use": "input_json_delta"}
FIELDS = {"thinking": "thinking", "text": "text", "tool_use": "partial_json"}
# What Anthropic's schema requires and this server has no other value for.
CITATIONS = {"citations": None}
CALLER = {"caller": {"type": "direct"}}
OF_MESSAGE = {"container": None, "stop_details": None}
OF_USAGE = {
    "cache_creation": None,
    "inference_geo": None,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": None,
}


class MessagesShape(AnswerFormat):
    """Blocks follow each other: thinking, text, calls of tools. One is open at a time."""

    done = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._n_blocks = 0
        self._open = ""  # type of the block that is being written
        self._called = False

    def _head(self) -> dict[str, Any]:
        head = {"id": f"msg_{self.dicts.unique}", "type": "message", "role": "assistant", "model": self.dicts.model}
        return {**head, **OF_MESSAGE}

    @property
    def _usage(self) -> dict[str, Any]:
        cached = self.n_cached
        return {
            "input_tokens": self.n_prompt - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self.n_written,
            **OF_USAGE,
        }

    def begin(self, text: ServedText) -> Iterator[Event]:
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**message, "usage": {**self._usage, "output_tokens": 0}})

    def _start(self, kind: str, block: dict[str, Any]) -> Iterator[Event]:
        yield from self._stop()
        self._open = kind
        yield _event("content_block_start", index=self._n_blocks, content_block={"type": kind, **block})
        self._n_blocks += 1

    def _stop(self) -> Iterator[Event]:
        if self._open == "thinking":  # clients want one; there is nothing to sign
            yield self._delta({"type": "signature_delta", "signature": ""})
        if self._open:
            yield _event("content_block_stop", index=self._n_blocks - 1)
        self._open = ""

    def _delta(self, delta: dict[str, Any]) -> Event:
        return _event("content_block_delta", index=self._n_blocks - 1, delta=delta)

    def part(self, text: ServedText, part: Part) -> Iterator[Event]:
        for kind, more, named in block_deltas(part, KINDS):
            if named is not None or self._open != kind:
                self._called |= kind == "tool_use"
                of_stream: dict[str, Any] = {"input": {}} if kind == "tool_use" else {FIELDS[kind]: ""}
                yield from self._start(kind, {**of_stream, **_block(kind, named)})
            if more:
                yield self._delta({"type": DELTAS[kind], FIELDS[kind]: more})

    def _why(self, text: ServedText, *, called: bool) -> dict[str, Any]:
        word = self.stopping_word(text)
        reason = (
            "max_tokens" if text.finish != "stop" else "tool_use" if called else "stop_sequence" if word else "end_turn"
        )
        return {"stop_reason": reason, "stop_sequence": word or None}

    def end(self, text: ServedText) -> Iterator[Event]:
        if not self._n_blocks:
            yield from self._start("text", {"text": "", **CITATIONS})
        yield from self._stop()
        yield _event("message_delta", delta={**OF_MESSAGE, **self._why(text, called=self._called)}, usage=self._usage)
        yield _event("message_stop")

    def answer(self) -> dict[str, Any]:
        (text,) = self.texts
        blocks: list[dict[str, Any]] = []
        for part in text.parts:
            for kind, more, named in block_deltas(part, KINDS):
                if named is not None or not blocks or blocks[-1]["type"] != kind:
                    blocks.append({"type": kind, FIELDS[kind]: "", **_block(kind, named)})
                blocks[-1][FIELDS[kind]] += more
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = _object(block.pop(FIELDS["tool_use"]))
        why = self._why(text, called=any(b["type"] == "tool_use" for b in blocks))
        return {
            **self._head(),
            "content": blocks or [{"type": "text", "text": "", **CITATIONS}],
            **why,
            "usage": self._usage,
        }

    def failed(self, e: ApiError) -> Event:
        return "error", e.anthropic_body


def _event(kind: str, **data: Any) -> Event:
    return kind, {"type": kind, **data}


def tool_id(own_id: str) -> str:
    """The model's own, or a new one."""
    return own_id or f"toolu_{uuid.uuid4().hex[:24]}"


def _block(kind: str, named: CallPiece | None) -> dict[str, Any]:
    """What a block has from its beginning."""
    if named is not None:
        return {"id": tool_id(named.id), "name": named.name, **CALLER}
    return {"signature": ""} if kind == "thinking" else CITATIONS


def _object(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
