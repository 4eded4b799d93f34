"""Tools, and their calls as models write them."""

from collections.abc import Collection

from duo.chat.call_scanner import CallScanner
from duo.chat.tool_calls import CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, SEP, Call

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}


ZONE = {
    "type": "object",
    "properties": {"zone": {"$ref": "#/$defs/zone"}},
    "required": ["zone"],
    "$defs": {"zone": {"enum": ["utc", "cet"]}},
}


WEATHER, CLOCK = {"name": "weather", "parameters": CITY}, {"name": "clock", "parameters": ZONE}


TOOLS = [{"type": "function", "function": f} for f in (WEATHER, CLOCK)]


MESSAGES = [{"role": "user", "content": "Tell me the tale of the frog."}]


ROME = Call("weather", '{"city": "Rome"}')


FORMS = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    "hermes, cut off": '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}',
    "llama 3": '{"name": "weather", "parameters": {"city": "Rome"}}',
    "llama 3, tag": '<|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "Rome"}}',
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]',
    "mistral, new": '[TOOL_CALLS]weather[ARGS]{"city": "Rome"}',
    "functionary": '<function=weather>{"city": "Rome"}</function>',
    "functionary, new": '>>>weather\n{"city": "Rome"}',
    "qwen3-coder": "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    "qwen3-coder, no mark": "<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    "granite 3": '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]',
    "firefunction": 'functools[{"name": "weather", "arguments": {"city": "Rome"}}]',
    "deepseek r1": f'{CALLS_BEGIN}{CALL_BEGIN}function{SEP}weather\n```json\n{{"city": "Rome"}}\n```{CALL_END}'
    + CALLS_END,
    "deepseek r1, cut off": f'{CALL_BEGIN}function{SEP}weather\n```json\n{{"city": "Rome"}}```',
    "deepseek v3": f'{CALLS_BEGIN}{CALL_BEGIN}weather{SEP}{{"city": "Rome"}}{CALL_END}{CALLS_END}',
    "command r7b": '<|START_ACTION|>[\n {"tool_name": "weather", "parameters": {"city": "Rome"}}\n]<|END_ACTION|>',
    "openai": '[{"function": {"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}}]',
}


NAMES = ("weather", "clock")


def split_calls(text: str, tools: Collection[str], *, alone: bool = True) -> tuple[str, list[Call]]:
    """A whole answer as its text and its calls."""
    events = CallScanner(tools, alone=alone).feed(text, last=True)
    return "".join(e for e in events if isinstance(e, str)), [e for e in events if isinstance(e, Call)]
