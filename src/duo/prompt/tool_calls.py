"""Calls of tools in what a model writes, in the forms that common templates teach.

Hermes and Qwen: <tool_call>{...}</tool_call>. Mistral: [TOOL_CALLS][{...}] and [TOOL_CALLS]name[ARGS]{...}. Llama 3:
{"name", "parameters"} alone, or behind <|python_tag|>. Functionary: <function=name>{...}</function> and >>>name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

# Where a call begins; nothing behind such a mark is shown before the text has ended.
MARKS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=", ">>>")
ALONE = "{["  # a text that begins so may be a call without a mark


@dataclass(frozen=True)
class Call:
    """One call. arguments: JSON text. id: as the model wrote it; empty: it wrote none."""

    name: str
    arguments: str
    id: str = ""


def _call(found: Any, names: Collection[str]) -> Call | None:
    """A call as an object with a name and its arguments; None: it is something else."""
    if not isinstance(found, dict):
        return None
    found = found["function"] if isinstance(found.get("function"), dict) else found
    name = found.get("name")
    arguments: Any = next((found[key] for key in ("arguments", "parameters") if key in found), {})
    if name not in names or not isinstance(arguments, dict | str):
        return None
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(name, text, str(found.get("id") or ""))


def _objects(text: str, names: Collection[str]) -> list[Call] | None:
    """Calls in JSON: one, a list of them, or several with semicolons or spaces between. None: it is something else."""
    decoder, calls, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at] in " \t\r\n;":
            at += 1
            continue
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        for one in found if isinstance(found, list) else [found]:
            if (call := _call(one, names)) is None:
                return None
            calls.append(call)
    return calls or None


def _named(name: str, arguments: str, names: Collection[str]) -> list[Call] | None:
    """A call whose name stands before its arguments."""
    try:
        known = name in names and isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return None
    return [Call(name, arguments.strip())] if known else None


def _blocks(text: str, pattern: str, names: Collection[str]) -> list[Call] | None:
    """Calls that follow each other, each in the form of the pattern, with spaces between."""
    calls: list[Call] = []
    if re.sub(pattern, "", text, flags=re.DOTALL).strip():
        return None
    for m in re.finditer(pattern, text, flags=re.DOTALL):
        found = _named(m[1].strip(), m[2], names) if m.re.groups == 2 else _objects(m[1], names)
        if found is None:
            return None
        calls += found
    return calls or None


def _marked(text: str, names: Collection[str]) -> list[Call] | None:
    """Calls in a text that begins with a mark."""
    if text.startswith("<tool_call>"):
        return _blocks(text, r"<tool_call>(.*?)(?:</tool_call>|\Z)", names)
    if text.startswith("<function="):
        return _blocks(text, r"<function=([^>]*)>(.*?)(?:</function>|\Z)", names)
    if text.startswith(">>>"):
        return _blocks(text, r">>>([^\n{]*)\n?(.*?)(?=>>>|\Z)", names)
    if text.startswith("<|python_tag|>"):
        return _objects(text.removeprefix("<|python_tag|>"), names)
    rest = text.removeprefix("[TOOL_CALLS]")
    if (found := _objects(rest.replace("[TOOL_CALLS]", ";"), names)) is not None:
        return found
    return _blocks(
        text, r"\[TOOL_CALLS\]\s*([^\[{\s]+)(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?\s*(.*?)(?=\[TOOL_CALLS\]|\Z)", names
    )


def split_calls(text: str, names: Collection[str]) -> tuple[str, list[Call]]:
    """What a model wrote, as the text before its calls, and the calls. names: of the tools.

    What looks like a call and is none, or names another tool, stays text.
    """
    if text.lstrip()[:1] in (*ALONE,) and (calls := _objects(text, names)):
        return "", calls
    for at in sorted(m.start() for mark in MARKS for m in re.finditer(re.escape(mark), text)):
        if calls := _marked(text[at:], names):
            return text[:at].rstrip(), calls
    return text, []


def n_shown(text: str) -> int:
    """Characters of an unfinished text that can be no part of a call: up to a mark, or to what may become one."""
    if text.lstrip()[:1] in ("", *ALONE):
        return 0
    ends = [text.find(mark) for mark in MARKS]
    if found := [n for n in ends if n >= 0]:
        return len(text[: min(found)].rstrip())
    return len(text[: len(text) - n_begun(text, MARKS)].rstrip())


def n_begun(text: str, marks: Collection[str]) -> int:
    """Characters at the end of the text with which one of the marks may begin."""
    longest = max(map(len, marks))
    for n in range(min(longest - 1, len(text)), 0, -1):
        if any(mark.startswith(text[-n:]) for mark in marks):
            return n
    return 0
