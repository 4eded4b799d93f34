"""Calls of tools in what a model writes, in the forms that common templates teach (duo.chat.call_scanner reads them).

Hermes, Qwen 2.5 and 3, Granite 4: <tool_call>{...}</tool_call>. Qwen3-Coder: <function=name> with <parameter=key> in
it, within <tool_call> or not. Mistral: [TOOL_CALLS][{...}] and [TOOL_CALLS]name[ARGS]{...}. Llama 3: {"name",
"parameters"} alone, or behind <|python_tag|>. Functionary: <function=name>{...}</function> and >>>name. Command R7B:
<|START_ACTION|>[{"tool_name", "parameters"}]. Granite 3: <|tool_call|>[{...}]. Firefunction: functools[{...}].
DeepSeek R1 and V3: marks of its own, tool_call_begin. llama.cpp (common/chat*.cpp, common/parsers/) reads these, and
more: calls of Kimi K2, GLM 4.6, MiniMax and LFM2 stay text here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

# DeepSeek's marks, with a fullwidth bar and a lower one eighth block.
CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEP = (
    f"<\uff5c{words}\uff5c>".replace(" ", "\u2581")
    for words in ("tool calls begin", "tool calls end", "tool call begin", "tool call end", "tool sep")
)
# Where a call begins, and what may stand behind it.
QWEN_ENDS, DEEPSEEK_ENDS = ("</function>", "</tool_call>"), ("```", CALL_END, CALLS_END)
MARKS: dict[str, tuple[str, ...]] = {
    "<tool_call>": QWEN_ENDS, "[TOOL_CALLS]": (), "<|python_tag|>": (), "<function=": QWEN_ENDS, ">>>": (),
    "<|START_ACTION|>": ("<|END_ACTION|>",), "<|tool_call|>": (), "functools[": (), CALLS_BEGIN: DEEPSEEK_ENDS,
    CALL_BEGIN: DEEPSEEK_ENDS,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call. arguments: JSON text, if the model wrote all of it. id: as the model wrote it; empty: it wrote none."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True)
class CallPiece:
    """A part of a call that is being written. The first one of a call has its name."""

    index: int
    name: str = ""
    id: str = ""  # as the model wrote it before the arguments; empty: it wrote none
    arguments: str = ""


def parameter_value(tools: Collection[str], function: str, parameter: str, text: str) -> Any:
    """The value of a parameter (Qwen3-Coder): text, unless the tool's schema wants something else."""
    schema: Any = tools.get(function) if isinstance(tools, Mapping) else None
    for key in ("properties", parameter):
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    kind = schema.get("type") if isinstance(schema, Mapping) else "string"
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        return text
    try:
        return json.loads(text.lower() if kind == "boolean" else text)
    except (ValueError, RecursionError):
        return text


def n_begun(text: str, marks: Collection[str]) -> int:
    """Characters at the end of the text with which one of the marks may begin."""
    longest = max(map(len, marks))
    for n in range(min(longest - 1, len(text)), 0, -1):
        if any(mark.startswith(text[-n:]) for mark in marks):
            return n
    return 0
