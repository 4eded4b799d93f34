"""OpenAI's Responses, without memory: every request brings its conversation. It becomes a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo.chat.pictures import is_picture
from duo.errors import BadValueError
from duo.server.chat_options import chat_texts, prompt_of
from duo.server.formats.responses import ResponsesShape
from duo.server.formats.shape import AnswerFormat
from duo.server.request_body import checked, fields_of
from duo.server.respond import Json, respond
from duo.server.routes.texts import common
from duo.server.schemas import ChatFields, ResponsesFields
from duo.server.text import ServedText
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

# Only a server could run these. Names may end with a date or a version (web_search_preview_2025_03_11).
OF_SERVERS = ("web_search", "file_search", "code_interpreter", "mcp", "image_generation")
# Codex offers some with every request, whatever its user wants; programs that embed it, and gateways, rename its agent.
CODEX = "codex"
OF_CODEX = ("originator", "session_id", "session-id")  # headers
WITH_CODEX = ("custom", "namespace", "tool_search")  # tools
TEXTS = ("input_text", "output_text", "text", "refusal", "reasoning_text")


def add(router: RouteTable, service: Service) -> None:
    async def create(request: Request) -> Response:
        """An answer to a conversation, as OpenAI's Responses."""
        f = await fields_of(service, request, ResponsesFields)
        chat = as_chat(f, _functions(f, request))

        def make() -> tuple[list[ServedText], AnswerFormat]:
            texts = chat_texts(chat, service.duo, service.settings)
            return texts, ResponsesShape(*common(service, texts), request=f)

        return await respond(service, request, chat, 1, make)

    async def input_tokens(request: Request) -> Response:
        """How many tokens a conversation has."""
        f = await fields_of(service, request, ResponsesFields)
        chat = as_chat(f, _functions(f, request))
        duo = service.check_ready()
        prompt = await service.in_thread(prompt_of, chat, duo, service.settings, fields=chat)
        return Json({"object": "response.input_tokens", "input_tokens": len(prompt.tokens)})

    for prefix in ("/v1", ""):
        shown = bool(prefix)
        router.post(f"{prefix}/responses", body=ResponsesFields, include_in_schema=shown)(create)
        router.post(f"{prefix}/responses/input_tokens", body=ResponsesFields, include_in_schema=shown)(input_tokens)


def _functions(f: ResponsesFields, request: Request) -> list[dict[str, Any]]:
    """The functions among the tools, as a chat has them. Raises BadValueError: the server would have to run a tool,
    or none is a function."""
    tools = f.tools or ()
    functions = [{"type": "function", "function": _function(t)} for t in tools if t.get("type") == "function"]
    kinds = [str(t.get("type")) for t in tools]
    is_codex = (
        CODEX in request.headers.get("user-agent", "").lower()
        or any(name in request.headers for name in OF_CODEX)
        or any(kind in WITH_CODEX for kind in kinds)
    )
    for i, kind in enumerate(kinds):
        of_client = functions and not kind.startswith(OF_SERVERS)  # which then lacks a tool, but has others
        if kind != "function" and not is_codex and not of_client:
            raise BadValueError(f"tool {i} is of type {quoted(kind)}; duo knows functions only, leave it out")
    return functions


def as_chat(f: ResponsesFields, tools: list[dict[str, Any]]) -> ChatFields:
    """Raises BadValueError and ApiError."""
    if f.previous_response_id is not None:
        raise BadValueError(
            "previous_response_id needs a memory that this server does not have; send the whole conversation"
        )
    messages: list[dict[str, Any]] = []
    if f.instructions:
        messages.append({"role": "system", "content": f.instructions})
    if isinstance(f.input, str):
        messages.append({"role": "user", "content": f.input})
    elif f.input is not None:
        messages += joined(_message(i, x) for i, x in enumerate(f.input))
    fields = f.model_dump(exclude_none=True)
    for name in ("input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens"):
        fields.pop(name, None)
    more: dict[str, Any] = {"messages": messages, "n": 1}
    if tools:
        more["tools"] = tools
        choice = f.tool_choice
        if isinstance(choice, Mapping) and "name" in choice:
            choice = {"type": "function", "function": {"name": choice["name"]}}
        more["tool_choice"] = choice
    if f.max_output_tokens is not None:
        more["max_tokens"] = f.max_output_tokens
    if isinstance(form := (f.text or {}).get("format"), Mapping):
        more["response_format"] = dict(form)
    if isinstance(effort := (f.reasoning or {}).get("effort"), str):
        more["reasoning_effort"] = effort
    return checked(ChatFields, {**fields, **more})


def _function(t: Mapping[str, Any]) -> dict[str, Any]:
    return {name: t[name] for name in ("name", "description", "parameters") if t.get(name) is not None}


def _message(i: int, x: Any) -> dict[str, Any]:
    """An item of the input as a message. Raises BadValueError."""
    if not isinstance(x, Mapping):
        raise BadValueError(f"item {i} of the input is {quoted(x)}; give messages")
    kind = x.get("type", "message")
    if kind == "function_call":
        function = {"name": str(x.get("name", "")), "arguments": str(x.get("arguments", "{}"))}
        call = {"id": str(x.get("call_id", "")), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": str(x.get("call_id", "")), "content": _output(i, x.get("output"))}
    if kind == "reasoning":
        thoughts = _text(i, x.get("content")) if x.get("content") else ""
        return {"role": "assistant", "content": "", "reasoning_content": thoughts}
    if kind != "message":
        raise BadValueError(
            f"item {i} of the input is of type {quoted(kind)}; duo reads messages and calls of functions"
        )
    content = x.get("content")
    if x.get("role") == "user" and isinstance(content, list) and any(map(is_picture, content)):
        return {"role": x.get("role"), "content": content}
    return {"role": x.get("role"), "content": content if isinstance(content, str) else _text(i, content, "\n")}


def _output(i: int, output: Any) -> Any:
    """Of a function: text, or a list of parts if there are pictures. Raises BadValueError."""
    if isinstance(output, list) and any(map(is_picture, output)):
        return [p if is_picture(p) else {"type": "text", "text": _text(i, p)} for p in output]
    return output if isinstance(output, str) else _text(i, output)


def _text(i: int, content: Any, between: str = "") -> str:
    out: list[str] = []
    parts: list[Any] = content if isinstance(content, list) else [content]
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text: Any = part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None
        if kind not in TEXTS or not isinstance(text, str):
            raise BadValueError(f"item {i} of the input holds {quoted(kind)}; duo reads text there")
        out.append(text)
    return between.join(out)


def joined(messages: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer is one message: its thoughts, its text and its calls, which come as items of their own."""
    out: list[dict[str, Any]] = []
    for m in messages:
        before = out[-1] if out else {}
        if m["role"] == "assistant" == before.get("role") and not (m["content"] and before["content"]):
            before["content"] = before["content"] + m["content"]
            for name in ("tool_calls", "reasoning_content"):
                if m.get(name):
                    before[name] = [*before.get(name, []), *m[name]] if name == "tool_calls" else m[name]
        else:
            out.append(m)
    return out
