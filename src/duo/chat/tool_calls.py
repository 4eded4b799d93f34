"""Calls of tools in what a model writes, in the forms that common templates teach.

Hermes, Qwen 2.5 and 3, Granite 4: <tool_call>{...}</tool_call>. Qwen3-Coder: <function=name> with <parameter=key> in
it, within <tool_call> or not. Mistral: [TOOL_CALLS][{...}] and [TOOL_CALLS]name[ARGS]{...}. Llama 3: {"name",
"parameters"} alone, or behind <|python_tag|>. Functionary: <function=name>{...}</function> and >>>name. Command R7B:
<|START_ACTION|>[{"tool_name", "parameters"}]. Granite 3: <|tool_call|>[{...}]. Firefunction: functools[{...}].
DeepSeek R1 and V3: marks of its own, tool_call_begin. llama.cpp (common/chat*.cpp, common/parsers/) reads the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

# DeepSeek's marks, with a fullwidth bar and a lower one eighth block.
CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEP = (
    f"<\uff5c{words}\uff5c>".replace(" ", "\u2581")
    for words in ("tool calls begin", "tool calls end", "tool call begin", "tool call end", "tool sep")
)
# Where a call begins; nothing behind such a mark is shown before the text has ended.
MARKS = (
    "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=", ">>>", "<|START_ACTION|>", "<|tool_call|>",
    "functools[", CALLS_BEGIN, CALL_BEGIN,
)  # fmt: skip
N_TRIED = 32  # of many marks, those at the begin and at the end; a model may repeat one to the end of its context
ALONE = "{["  # a text that begins so may be a call without a mark
NAMED_MISTRAL = r"\[TOOL_CALLS\]\s*([^\[{\s]+)(?:\[CALL_ID\]([^\[{\s]*))?(?:\[ARGS\])?\s*(.*?)(?=\[TOOL_CALLS\]|\Z)"
FUNCTION = r"(?:<tool_call>\s*)?<function=([^<>]*)>(.*?)(?:</function>|\Z)(?:\s*</tool_call>)?"
PARAMETER = r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>"
DEEPSEEK_R1 = rf"{CALL_BEGIN}function{SEP}([^\n]+)\n```json\n(.*?)```\s*(?:{CALL_END}|\Z)"
DEEPSEEK_V3 = rf"{CALL_BEGIN}([^\n<]*){SEP}(.*?)(?:{CALL_END}|\Z)"


@dataclass(frozen=True)
class Call:
    """One call. arguments: JSON text. id: as the model wrote it; empty: it wrote none."""

    name: str
    arguments: str
    id: str = ""


def _call(value: Any, tools: Collection[str]) -> Call | None:
    """A call as an object with a name and its arguments; None: it is something else."""
    if not isinstance(value, dict):
        return None
    call = value["function"] if isinstance(value.get("function"), dict) else value
    name = next((call[key] for key in ("name", "tool_name", "function") if isinstance(call.get(key), str)), "")
    arguments: Any = next((call[key] for key in ("arguments", "parameters") if key in call), {})
    if name not in tools or not isinstance(arguments, dict | str):
        return None
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(name, text, str(call.get("id") or call.get("tool_call_id") or ""))


def _objects(text: str, tools: Collection[str]) -> list[Call] | None:
    """Calls in JSON: one, a list of them, or several with semicolons or spaces between. None: it is something else."""
    decoder, calls, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at] in " \t\r\n;":
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        for one in value if isinstance(value, list) else [value]:
            if (call := _call(one, tools)) is None:
                return None
            calls.append(call)
    return calls or None


def _named(name: str, arguments: str, tools: Collection[str], call_id: str = "") -> list[Call] | None:
    """A call whose name stands before its arguments: JSON, or Qwen3-Coder's parameters."""
    if name in tools and (arguments.startswith("<parameter=") or not arguments):
        parameters = _parameters(name, arguments, tools)
        return None if parameters is None else [Call(name, parameters, call_id)]
    try:
        is_call = name in tools and isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return None
    return [Call(name, arguments, call_id)] if is_call else None


def _parameters(function: str, text: str, tools: Collection[str]) -> str | None:
    """Qwen3-Coder's parameters as JSON text; None: it is something else."""
    schema = tools.get(function) if isinstance(tools, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    schemas = properties if isinstance(properties, Mapping) else {}
    values, at, parameter = {}, 0, re.compile(rf"{PARAMETER}\s*", re.DOTALL)
    while at < len(text):
        if (m := parameter.match(text, at)) is None:
            return None
        at, name = m.end(), m[1].strip()
        values[name] = _value(m[2], schemas.get(name))
    return json.dumps(values, ensure_ascii=False)


def _value(text: str, schema: Any) -> Any:
    """A parameter's value: text, unless the schema wants something else."""
    kind = schema.get("type") if isinstance(schema, Mapping) else "string"
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        return text
    try:
        return json.loads(text.lower() if kind == "boolean" else text)
    except (ValueError, RecursionError):
        return text


def _blocks(text: str, pattern: str, tools: Collection[str]) -> list[Call] | None:
    """Calls that follow each other, each in the form of the pattern, with spaces between.

    pattern: with a group for JSON, for name and arguments, or for name, id and arguments.
    """
    calls: list[Call] = []
    text, at, block = text.strip(), 0, re.compile(rf"(?:{pattern})\s*", re.DOTALL)
    while at < len(text):
        if (m := block.match(text, at)) is None:
            return None
        at = m.end()
        groups = [(g or "").strip() for g in m.groups()]
        if len(groups) == 1:
            block_calls = _objects(groups[0], tools)
        else:
            block_calls = _named(groups[0], groups[-1], tools, groups[1] if len(groups) == 3 else "")
        if block_calls is None:
            return None
        calls += block_calls
    return calls or None


def _marked(text: str, tools: Collection[str]) -> list[Call] | None:
    """Calls in a text that begins with a mark."""
    if text.startswith(("<tool_call>", "<function=")):
        function = re.match(r"(?:<tool_call>\s*)?<function=", text) is not None
        return _blocks(text, FUNCTION if function else r"<tool_call>(.*?)(?:</tool_call>|\Z)", tools)
    if text.startswith(">>>"):
        return _blocks(text, r">>>([^\n{]*)\n?(.*?)(?=>>>|\Z)", tools)
    if text.startswith((CALLS_BEGIN, CALL_BEGIN)):
        inner = text.removeprefix(CALLS_BEGIN).strip().removesuffix(CALLS_END)
        return _blocks(inner, DEEPSEEK_R1, tools) or _blocks(inner, DEEPSEEK_V3, tools)
    for begin, end in (("<|python_tag|>", ""), ("<|tool_call|>", ""), ("functools", ""),
                       ("<|START_ACTION|>", "<|END_ACTION|>")):  # fmt: skip
        if text.startswith(begin):
            return _objects(text.removeprefix(begin).rstrip().removesuffix(end), tools)
    rest = text.removeprefix("[TOOL_CALLS]")
    if (calls := _objects(rest.replace("[TOOL_CALLS]", ";"), tools)) is not None:
        return calls
    return _blocks(text, NAMED_MISTRAL, tools)


def split_calls(text: str, tools: Collection[str], *, alone: bool = True) -> tuple[str, list[Call]]:
    """What a model wrote, as the text before its calls, and the calls.

    tools: their names, or their schemas by name. alone: the text has its beginning, where a call needs no mark. What
    looks like a call and is none, or names another tool, stays text.
    """
    if alone and text.lstrip()[:1] in (*ALONE,) and (calls := _objects(text, tools)):
        return "", calls
    marks = sorted(m.start() for mark in MARKS for m in re.finditer(re.escape(mark), text))
    for at in marks if len(marks) <= 2 * N_TRIED else marks[:N_TRIED] + marks[-N_TRIED:]:
        if calls := _marked(text[at:], tools):
            return text[:at].rstrip(), calls
    return text, []


def n_shown(text: str, *, alone: bool = True) -> int:
    """Characters of an unfinished text that can be no part of a call: up to a mark, or to what may become one."""
    if alone and text.lstrip()[:1] in ("", *ALONE):
        return 0
    ends = [text.find(mark) for mark in MARKS]
    if starts := [n for n in ends if n >= 0]:
        return len(text[: min(starts)].rstrip())
    return len(text[: len(text) - n_begun(text, MARKS)].rstrip())


def n_begun(text: str, marks: Collection[str]) -> int:
    """Characters at the end of the text with which one of the marks may begin."""
    longest = max(map(len, marks))
    for n in range(min(longest - 1, len(text)), 0, -1):
        if any(mark.startswith(text[-n:]) for mark in marks):
            return n
    return 0
