"""/v1/responses: OpenAI's Responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from duo.chat.reading import Part
from duo.chat.tool_calls import CallPiece
from duo.compat.openai.messages import call_id
from duo.server.errors import ApiError
from duo.server.formats.block_deltas import block_deltas
from duo.server.formats.shape import AnswerFormat, Event
from duo.server.schemas import ResponsesFields
from duo.server.text import ServedText

KINDS = ("reasoning", "message", "function_call")


class ResponsesShape(AnswerFormat):
    """Items follow each other: reasoning, a message, calls of functions. One is open at a time."""

    done = False

    def __init__(self, *args: Any, request: ResponsesFields, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request = request
        self._items: list[dict[str, Any]] = []
        self._open = ""  # type of the item that is being written
        self._text = ""  # of it
        self._n_events = 0

    # ---- items

    def _item(self, kind: str, text: str, *, is_complete: bool, named: CallPiece | None = None) -> dict[str, Any]:
        status = "completed" if is_complete else "in_progress"
        unique = uuid.uuid4().hex
        if kind == "reasoning":
            parts = [{"type": "reasoning_text", "text": text}] if is_complete else []
            return {"id": f"rs_{unique}", "type": kind, "summary": [], "content": parts, "encrypted_content": "",
                    "status": status}  # fmt: skip
        if kind == "message":
            return {"id": f"msg_{unique}", "type": kind, "role": "assistant", "status": status,
                    "content": [_part(text)] if is_complete else []}  # fmt: skip
        called = named or CallPiece(0)
        return {"id": f"fc_{unique}", "type": "function_call", "status": status, "call_id": call_id(called.id),
                "name": called.name, "arguments": text}  # fmt: skip

    def _response(self, status: str, text: ServedText | None = None) -> dict[str, Any]:
        """All fields of OpenAI's schema that a server without memory has a value for."""
        o, request, more = self.texts[0].job.options, self._request, self._request.model_extra or {}
        response: dict[str, Any] = {
            "id": f"resp_{self.dicts.unique}",
            "object": "response",
            "created_at": self.dicts.created,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": more.get("max_tool_calls"),
            "model": self.dicts.model,
            "output": self._items,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **(request.reasoning or {})},
            "temperature": o["temperature"],
            "top_p": o["top_p"],
            "presence_penalty": o["presence_penalty"],
            "frequency_penalty": o["frequency_penalty"],
            "top_logprobs": 0,
            "text": {"format": {"type": "text"}, **(request.text or {})},
            "tool_choice": request.tool_choice or "auto",
            "tools": [_tool(t) for t in request.tools or []],
            "truncation": "disabled",  # a conversation that is too long is refused
            "usage": None,
            "user": more.get("user"),
            "metadata": more.get("metadata") or {},
            # What the server has not: it keeps no answers, and works on them while the client waits.
            "store": False,
            "background": False,
            "service_tier": "default",
            "safety_identifier": more.get("safety_identifier"),
            "prompt_cache_key": more.get("prompt_cache_key"),
        }
        if text is None:
            return response
        if text.finish != "stop":
            response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        else:
            response["completed_at"] = int(time.time())
        response["usage"] = {
            "input_tokens": self.n_prompt,
            "input_tokens_details": {
                "cached_tokens": self.n_cached,
                "cache_write_tokens": self.n_prompt - self.n_cached,
            },
            "output_tokens": self.n_written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.n_prompt + self.n_written,
        }
        return {**response, "timings": text.timings}

    # ---- events

    def _event(self, kind: str, **data: Any) -> Event:
        self._n_events += 1
        return kind, {"type": kind, "sequence_number": self._n_events - 1, **data}

    def _of_item(self, kind: str, **data: Any) -> Event:
        return self._event(kind, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, **data)

    def begin(self, text: ServedText) -> Iterator[Event]:
        if not self._n_events:
            yield from self._begin()

    def _begin(self, **more: Any) -> Iterator[Event]:
        response = {**self._response("in_progress"), "output": []}
        if not self._n_events:
            yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response, **more)

    def progress(self, text: ServedText, figures: Mapping[str, int]) -> Iterator[Event]:
        yield from self._begin(prompt_progress=figures)

    def _start(self, kind: str, named: CallPiece | None = None) -> Iterator[Event]:
        yield from self._stop()
        self._open, self._text = kind, ""
        item = self._item(kind, "", is_complete=False, named=named)
        self._items.append(item)
        yield self._event("response.output_item.added", output_index=len(self._items) - 1, item=dict(item))
        if kind == "message":
            yield self._of_item("response.content_part.added", content_index=0, part=_part(""))

    def _stop(self, status: str = "completed") -> Iterator[Event]:
        if not self._open:
            return
        item, text, kind = self._items[-1], self._text, self._open
        self._open = ""
        item["status"] = status
        if kind == "message":
            item["content"] = [_part(text)]
            yield self._of_item("response.output_text.done", content_index=0, text=text, logprobs=[])
            yield self._of_item("response.content_part.done", content_index=0, part=_part(text))
        elif kind == "reasoning":
            item["content"] = [{"type": "reasoning_text", "text": text}]
            yield self._of_item("response.reasoning_text.done", content_index=0, text=text)
        else:
            item["arguments"] = text
            yield self._of_item("response.function_call_arguments.done", arguments=text, name=item["name"])
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=dict(item))

    def _more(self, kind: str, delta: str) -> Iterator[Event]:
        if self._open != kind:
            yield from self._start(kind)
        self._text += delta
        if kind == "message":
            yield self._of_item("response.output_text.delta", content_index=0, delta=delta, logprobs=[])
        elif kind == "reasoning":
            yield self._of_item("response.reasoning_text.delta", content_index=0, delta=delta)
        else:
            yield self._of_item("response.function_call_arguments.delta", delta=delta)

    def part(self, text: ServedText, part: Part) -> Iterator[Event]:
        for kind, delta, named in block_deltas(part, KINDS):
            if named is not None:
                yield from self._start(kind, named)
            if delta:
                yield from self._more(kind, delta)

    def end(self, text: ServedText) -> Iterator[Event]:
        yield from self._stop("completed" if text.finish == "stop" else "incomplete")
        response = self._response("completed", text)
        yield self._event(f"response.{response['status']}", response=response)

    def answer(self) -> dict[str, Any]:
        text = self.texts[0]
        items: list[tuple[str, CallPiece | None, list[str]]] = []  # their types, names and texts
        for part in text.parts:
            for kind, delta, named in block_deltas(part, KINDS):
                if named is not None or not items or items[-1][0] != kind:
                    items.append((kind, named, []))
                items[-1][2].append(delta)
        self._items = [
            self._item(kind, "".join(deltas), is_complete=True, named=named) for kind, named, deltas in items
        ]
        if self._items and text.finish != "stop":
            self._items[-1]["status"] = "incomplete"
        return self._response("completed", text)

    def failed(self, e: ApiError) -> Event:
        return self._event("error", code=str(e.status), message=e.message, param=None)


def _tool(tool: Any) -> Any:
    """As OpenAI returns it: with all fields of a function."""
    is_function = isinstance(tool, Mapping) and tool.get("type") == "function"
    return {"description": None, "parameters": None, "strict": None, **tool} if is_function else tool


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
