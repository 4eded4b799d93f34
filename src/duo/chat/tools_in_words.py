"""Tools for models whose template has no place for them: the system prompt describes them, and calls and results are
text. duo.chat.tool_calls reads calls of this form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Messages = list[dict[str, Any]]

HEAD = "These tools can be called, each described by a line of JSON:"
HOW = """To call a tool, write an object with its name and its arguments between these marks, and wait for the result:
<tool_call>
{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>
Write several blocks for several calls, and none if no tool is needed."""


def described(messages: Messages, tools: Iterable[Any]) -> Messages:
    """The messages with a system prompt that ends with the tools."""
    lines = [json.dumps(t.get("function", t) if isinstance(t, Mapping) else t, ensure_ascii=False) for t in tools]
    words = "\n".join([HEAD, *lines, "", HOW])
    first = messages[0]
    if first["role"] == "system":
        return [{**first, "content": "\n\n".join(filter(None, [first["content"], words]))}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]


def calls_in_words(messages: Messages, *, results: bool) -> Messages:
    """Calls as text of their answers. results: those of tools become the user's messages."""
    out: Messages = []
    after_result = False
    for m in messages:
        is_result = results and m["role"] == "tool"
        if m.get("tool_calls"):
            m = {k: v for k, v in m.items() if k != "tool_calls"} | {"content": _called(m)}
        elif is_result:
            m = {"role": "user", "content": f"<tool_response>\n{m['content'] or ''}\n</tool_response>"}
        if after_result and m["role"] == "user":  # many templates want the roles to alternate
            m = {**m, "content": f"{out.pop()['content']}\n{m['content'] or ''}"}
        after_result = is_result
        out.append(m)
    return out


def _called(m: Mapping[str, Any]) -> str:
    texts = [m["content"]] if m["content"] else []
    for call in m["tool_calls"]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = function.get("arguments") or "{}"
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            name = json.dumps(function.get("name", ""), ensure_ascii=False)
            texts.append(f'<tool_call>\n{{"name": {name}, "arguments": {text}}}\n</tool_call>')
    return "\n".join(texts)
