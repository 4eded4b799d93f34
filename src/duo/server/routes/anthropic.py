"""Anthropic's routes: /v1/messages and its count of tokens. A request becomes one of OpenAI's chats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo.chat.pictures import is_picture
from duo.errors import BadValueError
from duo.server.chat_options import chat_texts, prompt_of
from duo.server.formats.messages import MessagesShape
from duo.server.formats.shape import AnswerFormat
from duo.server.request_body import checked, fields_of
from duo.server.respond import Json, respond
from duo.server.routes.texts import common
from duo.server.schemas import ChatFields, MessagesFields
from duo.server.text import ServedText
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def add(router: RouteTable, service: Service) -> None:
    @router.post("/v1/messages", body=MessagesFields)
    async def messages(request: Request) -> Response:
        """An answer to a conversation, as Anthropic's."""
        f = await fields_of(service, request, MessagesFields)
        chat = as_chat(f)

        def make() -> tuple[list[ServedText], AnswerFormat]:
            texts = chat_texts(chat, service.duo, service.settings)
            return texts, MessagesShape(*common(service, texts))

        return await respond(service, request, chat, 1, make)

    @router.post("/v1/messages/count_tokens", body=MessagesFields)
    async def count_tokens(request: Request) -> Response:
        """How many tokens a conversation has."""
        chat = as_chat(await fields_of(service, request, MessagesFields))
        duo = service.check_ready()
        prompt = await service.in_thread(prompt_of, chat, duo, service.settings, fields=chat)
        return Json({"input_tokens": len(prompt.tokens)})


def as_chat(f: MessagesFields) -> ChatFields:
    """Raises BadValueError and ApiError."""
    messages: list[dict[str, Any]] = []
    if f.system:
        messages.append({"role": "system", "content": _joined(f.system, "the system prompt")})
    for i, m in enumerate(f.messages or ()):
        messages += _messages(i, m)
    fields = f.model_dump(exclude_none=True)
    for name in ("messages", "system", "tools", "tool_choice", "thinking", "stop_sequences", "output_config"):
        fields.pop(name, None)
    tools = [_tool(i, t) for i, t in enumerate(f.tools or ())]
    more: dict[str, Any] = {"messages": messages, "n": 1}
    if tools:
        more["tools"] = tools
        if f.tool_choice is not None:
            more["tool_choice"] = _choice(f.tool_choice)
            more["parallel_tool_calls"] = not f.tool_choice.get("disable_parallel_tool_use")
    if f.stop_sequences:
        more["stop"] = f.stop_sequences
    if f.thinking is not None:
        more["reasoning_effort"] = "none" if f.thinking.get("type") == "disabled" else "medium"
        if isinstance(budget := f.thinking.get("budget_tokens"), int) and f.thinking.get("type") == "enabled":
            more["thinking_budget_tokens"] = budget
    config = f.output_config or {}
    if isinstance(config.get("format"), dict):
        more["response_format"] = config["format"]
    if isinstance(config.get("effort"), str):
        more.setdefault("reasoning_effort", config["effort"])
    return checked(ChatFields, {**fields, **more})


def _joined(content: Any, what: str) -> str:
    """The text of a content: a string, or a list of blocks. Raises BadValueError."""
    if isinstance(content, str):
        return content
    out = []
    for block in content if isinstance(content, Sequence) else [content]:
        if not isinstance(block, Mapping) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            kind = block.get("type") if isinstance(block, Mapping) else block
            raise BadValueError(f"{what} holds {quoted(kind)}; duo reads text there")
        out.append(block["text"])
    return "".join(out)


def _messages(i: int, m: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One of theirs may be several: results of tools are messages of their own."""
    what, content = f"message {i}", m.get("content")
    if isinstance(content, str) or content is None:
        yield {"role": m.get("role"), "content": content}
        return
    if not isinstance(content, list):
        raise BadValueError(f"the content of {what} is {quoted(content)}; give text or blocks")
    text: list[Any] = []
    thoughts, calls = [], []
    for b in content:
        kind = b.get("type") if isinstance(b, Mapping) else None
        if kind == "tool_result":
            result = _result(b.get("content"), what)
            yield {"role": "tool", "tool_call_id": str(b.get("tool_use_id", "")), "content": result}
        elif kind == "tool_use":
            arguments = json.dumps(b.get("input") or {}, ensure_ascii=False)
            function = {"name": str(b.get("name", "")), "arguments": arguments}
            calls.append({"id": str(b.get("id", "")), "type": "function", "function": function})
        elif kind == "thinking":
            thoughts.append(str(b.get("thinking", "")))
        elif kind == "image":
            text.append(b)
        elif kind != "redacted_thinking":
            text.append(_joined([b], what))
    if text or calls or thoughts:
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        if thoughts:
            more["reasoning_content"] = "".join(thoughts)
        yield {"role": m.get("role"), "content": _content(text), **more}


def _result(content: Any, what: str) -> Any:
    """A tool's: text, or a list of parts if there are pictures. Raises BadValueError."""
    if not isinstance(content, list) or not any(map(is_picture, content)):
        return "" if content is None else _joined(content, what)
    return [b if is_picture(b) else {"type": "text", "text": _joined([b], what)} for b in content]


def _content(parts: list[Any]) -> Any:
    """Text, or a list of parts if there are pictures."""
    if all(isinstance(p, str) for p in parts):
        return "\n".join(parts)
    return [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]


def _tool(i: int, t: Mapping[str, Any]) -> dict[str, Any]:
    """Raises BadValueError: it is one of Anthropic's own, which the model would have to know without a schema."""
    if "input_schema" not in t:
        called = t.get("name") or t.get("type")
        raise BadValueError(
            f"tool {i} ({quoted(called)}) has no input_schema; duo knows only tools that have one, leave it out"
        )
    shown = {"name": t.get("name"), "description": t.get("description", ""), "parameters": t["input_schema"]}
    return {"type": "function", "function": shown}


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in CHOICES:
        raise BadValueError(f"tool_choice is {quoted(choice)}; its type is auto, any, tool or none")
    return CHOICES[kind]
