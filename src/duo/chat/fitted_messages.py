"""Messages as a template can show them. Most templates show what OpenAI's API has; these are the exceptions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from duo.chat.tools_in_words import Messages, calls_in_words, described

if TYPE_CHECKING:
    from duo.chat.template_traits import CallTraits, TemplateTraits

HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # of a surrogate pair, perhaps


def fitted(messages: Messages, tools: Any, traits: TemplateTraits, *, in_words: bool) -> tuple[Messages, Any]:
    """The messages, and the tools that are left for the template. in_words: what it cannot show becomes text."""
    to_describe = in_words and bool(tools) and not traits.tools
    if any(m.get("tool_calls") or m["role"] == "tool" for m in messages):
        if traits.calls.shown and not to_describe:
            messages = _with_calls(messages, traits.calls)
        elif in_words:
            messages = calls_in_words(messages, results=not traits.results)
    if to_describe:
        messages, tools = described(messages, tools), None
    if any(m["role"] == "system" for m in messages) and not traits.system:
        messages = _without_system(messages)
    return messages, tools


def _with_calls(messages: Messages, traits: CallTraits) -> Messages:
    out = []
    for m in messages if traits.parallel else _one_by_one(messages):
        if m.get("tool_calls"):
            calls = [_call(c, traits) for c in m["tool_calls"]]
            m = {**m, "content": m["content"] or (None if traits.null else ""), "tool_calls": calls}
        elif traits.short_ids and isinstance(m.get("tool_call_id"), str):
            m = {**m, "tool_call_id": short_id(m["tool_call_id"])}
        out.append(m)
    return out


def _call(call: Any, traits: CallTraits) -> Any:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    fixed = {**call, "function": {**call["function"]}}
    if "arguments" in call["function"]:
        arguments = call["function"]["arguments"]
        fitting = object_of(arguments) if traits.objects else text_of(arguments)
        if traits.only_objects and not isinstance(fitting, Mapping):  # a call that was cut, say; the agent goes on
            fitting = {"text": fitting}
        fixed["function"]["arguments"] = fitting
    if traits.short_ids and isinstance(call.get("id"), str):
        fixed["id"] = short_id(call["id"])
    return fixed


def object_of(arguments: Any) -> Any:
    """The arguments of a call as an object. Text that is none stays."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments) if arguments.strip() else {}
        if isinstance(value, dict) and HALF.search(arguments):
            value = json.loads(text_of(value))
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def text_of(arguments: Any) -> Any:
    """The arguments of a call as JSON text. Halves of surrogate pairs, which JSON may escape, are no Unicode."""
    text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else text


def short_id(own_id: str) -> str:
    """Nine letters and digits, as Mistral's templates want them; the same ones for the same id."""
    is_short = re.fullmatch(r"[A-Za-z0-9]{9}", own_id)
    return own_id if is_short else hashlib.sha256(own_id.encode("utf-8", "replace")).hexdigest()[:9]


def _one_by_one(messages: Messages) -> Messages:
    """Answers with several calls become several, each with the result of its call behind it."""
    out: Messages = []
    rest = list(messages)
    while rest:
        m = rest.pop(0)
        calls = m.get("tool_calls") or ()
        if len(calls) < 2:
            out.append(m)
            continue
        results = list(takewhile(lambda x: x["role"] == "tool", rest))
        del rest[: len(results)]
        for i, call in enumerate(calls):
            of_first = {} if i == 0 else {"content": "", "reasoning_content": ""}
            out.append({**m, **of_first, "tool_calls": [call]})
            called = call.get("id") if isinstance(call, Mapping) else None
            out += [r for r in results if r.get("tool_call_id") == called]
            results = [r for r in results if r.get("tool_call_id") != called]
        out += results
    return out


def _without_system(messages: Messages) -> Messages:
    """System prompts before the next user message, as in llama.cpp."""
    out: Messages = []
    told: list[str] = []
    for m in messages:
        if m["role"] == "system":
            told.append(m["content"] or "")
        elif m["role"] == "user" and told:
            out.append({**m, "content": "\n".join([*told, m["content"] or ""])})
            told = []
        else:
            out.append(m)
    return [*out, {"role": "user", "content": "\n".join(told)}] if told else out
