"""Tools in chat templates: a call and its result are in the next turn's prompt, as the template wants them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from duo.chat.chat_template import ChatTemplate
from duo.chat.fitted_messages import short_id
from duo.chat.tools_in_words import HEAD

LONG = "call_0123456789abcdef01234567"
USER = {"role": "user", "content": "Sun?"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Looks.",
            "parameters": {
                "type": "object",
                "properties": {"town": {"type": "string", "description": "A town."}},
                "required": ["town"],
            },
        },
    }
]
# What the templates of models have in common, reduced to how they write a call.
LOOP = ("{% if messages[0].role == 'system' %}S:{{ messages[0].content }};{% endif %}{% for t in tools or [] %}"
        "T:{{ t.function.name }};{% endfor %}{% for m in messages %}{% if m.role != 'system' %}{{ m.role[0] }}:"
        "{{ m.content or '' }}{% for c in m.tool_calls or [] %}CALL{% endfor %};{% endif %}{% endfor %}")  # fmt: skip
QWEN = "<{{ c.function.name }}{% for k, v in c.function.arguments|items %} {{ k }}={{ v }}{% endfor %}>"
HERMES = "<{{ c.function.name }} {{ c.function.arguments|tojson }}>"
DEEPSEEK = "{{ '<' + c.function.name + ' ' + c.function.arguments + '>' }}"
BOTH = (
    "<{{ c.function.name }} {% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
    "{{ c.function.arguments|tojson }}{% endif %}>"
)
NINE = "{% if c.id|length != 9 %}{{ raise_exception('ids have 9') }}{% endif %}<{{ c.id }} {{ c.function.name }} {{ c.function.arguments|tojson }}>"  # noqa: E501


def called(*calls: tuple[str, Any], content: str | None = None) -> list[dict[str, Any]]:
    made = [{"id": i, "type": "function", "function": {"name": "weather", "arguments": a}} for i, a in calls]
    results = [{"role": "tool", "tool_call_id": i, "content": f"4{i[-1]}"} for i, _ in calls]
    return [USER, {"role": "assistant", "content": content, "tool_calls": made}, *results]


@pytest.mark.parametrize("form,sent,written", [
    (QWEN, '{"a":1}', "<weather a=1>"),
    (QWEN, {"a": 1}, "<weather a=1>"),
    (QWEN, "", "<weather>"),
    (QWEN, '{"a": "cut', '<weather text={"a": "cut>'),
    (HERMES, '{"a":1}', '<weather {"a": 1}>'),
    (HERMES, "no {JSON", '<weather "no {JSON">'),
    (HERMES, "[1]", '<weather "[1]">'),
    (DEEPSEEK, '{"a":1}', '<weather {"a":1}>'),
    (DEEPSEEK, {"a": 1}, '<weather {"a": 1}>'),
    # Half of a surrogate pair is no Unicode; a whole pair is.
    (HERMES, r'{"a": "\ud83d"}', '<weather {"a": "\ufffd"}>'),
    (QWEN, r'{"a": "\uD83D\uDE00 \udE00"}', "<weather a=\U0001f600 \ufffd>"),
    (QWEN, '{"a": "\ud83d"}', "<weather a=\ufffd>"),
    (HERMES, r'["\ud83d"]', r'<weather "[\"\\ud83d\"]">'),
    (DEEPSEEK, {"a": "\ud83d"}, '<weather {"a": "\ufffd"}>'),
    (BOTH, '{"a":1}', '<weather {"a":1}>'),  # as the model wrote it
])  # fmt: skip
def test_arguments_of_earlier_calls(form: str, sent: Any, written: str) -> None:
    messages = called((LONG, sent))
    kept = json.dumps(messages)
    text = ChatTemplate(LOOP.replace("CALL", form)).render(messages, tools=TOOLS)
    assert text == f"T:weather;u:Sun?;a:{written};t:47;" and json.dumps(messages) == kept


def test_ids_of_nine_where_a_template_wants_them() -> None:
    results = (
        "{% for m in messages %}{% if m.role == 'tool' %}{% if m.tool_call_id|length != 9 %}{{ raise_exception('9') }}"
    )
    template = ChatTemplate(
        LOOP.replace("CALL", NINE) + results + "{% endif %}{{ m.tool_call_id }};{% endif %}{% endfor %}"
    )
    text = template.render(called((LONG, "{}"), ("abcdef123", "{}")), tools=TOOLS, in_words=True)
    short = short_id(LONG)
    assert len(short) == 9 and short.isalnum() and short != short_id(LONG + "8")
    assert f"<{short} weather {{}}><abcdef123 weather {{}}>" in text and text.endswith(f"{short};abcdef123;")
    other = ChatTemplate(LOOP.replace("CALL", "<{{ c.id }} {{ c.function.arguments|tojson }}>"))
    assert f"<{LONG} {{}}>" in other.render(called((LONG, "{}")), tools=TOOLS)


def test_templates_that_ignore_calls_of_messages_with_content_get_none() -> None:
    """DeepSeek-R1's distilled models."""
    loop = LOOP.replace("m.tool_calls or []", "(m.tool_calls if m.content is none else none) or []")
    for content in ("", None):
        text = ChatTemplate(loop.replace("CALL", DEEPSEEK)).render(called((LONG, "{}"), content=content))
        assert text == "u:Sun?;a:<weather {}>;t:47;"


@pytest.mark.parametrize("one", [
    "{% if m.tool_calls|length > 1 %}{{ raise_exception('one call') }}{% endif %}" + HERMES,  # Llama 3
    "{% if loop.first %}" + HERMES + "{% endif %}",  # gpt-oss
])  # fmt: skip
def test_calls_come_one_by_one_where_a_message_has_one(one: str) -> None:
    template = ChatTemplate(LOOP.replace("CALL", one))
    text = template.render([*called(("x1", '{"a": 1}'), ("x2", '{"a": 2}'), content="Look."), USER])
    assert text == 'u:Sun?;a:Look.<weather {"a": 1}>;t:41;a:<weather {"a": 2}>;t:42;u:Sun?;'


ALTERNATE = (  # Gemma 2
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
)


def test_a_template_without_a_place_for_tools_has_them_in_words() -> None:
    template = ChatTemplate(ALTERNATE)
    assert not template.traits.tools and not template.traits.system and not template.traits.calls.shown
    first = template.render([{"role": "system", "content": "Be brief."}, USER], tools=TOOLS, in_words=True)
    assert first.startswith(f"u:Be brief.\n\n{HEAD}\n") and first.endswith("\nSun?;")
    assert json.dumps(TOOLS[0]["function"]) in first
    text = template.render([*called(("x1", '{"a": 1}'), ("x2", "{}"), content="Look."), USER], in_words=True)
    call = '<tool_call>\n{{"name": "weather", "arguments": {}}}\n</tool_call>'
    assert text == (
        "u:Sun?;a:Look.\n" + call.format('{"a": 1}') + "\n" + call.format("{}") + ";u:<tool_response>\n41\n"
        "</tool_response>\n<tool_response>\n42\n</tool_response>\nSun?;"
    )


def test_a_system_prompt_that_a_template_refuses_stands_before_the_question() -> None:
    refuses = ChatTemplate(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + ALTERNATE
    )
    system = {"role": "system", "content": "Be brief."}
    assert refuses.render([system, USER]) == "u:Be brief.\nSun?;"
    assert refuses.render([system]) == "u:Be brief.;"
    assert ChatTemplate(LOOP).render([system, USER]) == "S:Be brief.;u:Sun?;"


def published() -> list[Path | None]:
    """Templates of many models, in the sdist that `make wheel` unpacks or where DUO_TEMPLATES says."""
    given = os.environ.get("DUO_TEMPLATES")
    unpacked = Path(__file__).parents[1] / "build/wheel"
    folders = [Path(given)] if given else unpacked.glob("llama_cpp_python-*/vendor/llama.cpp/models/templates")
    return sorted(f for folder in folders for f in folder.glob("*.jinja")) or [None]


@pytest.mark.daily
@pytest.mark.parametrize("path", published(), ids=lambda p: p.stem if p else "none")
def test_every_template_shows_what_an_agent_did(path: Path | None) -> None:
    if path is None:
        pytest.skip("no templates *.jinja: run make wheel, or name their folder in DUO_TEMPLATES")
    template = ChatTemplate(path.read_text(encoding="utf-8"), bos="<s>", eos="</s>")
    one = called((LONG, '{"city": "Rome"}'), content=None)
    two = [*called(("toolu_a1", '{"city": "Rome"}'), ("toolu_b2", '{"city": "Bonn"}')), {
        "role": "assistant", "content": "Done."}, USER]  # fmt: skip
    for messages, words in ((one, ("Rome", "47")), (two, ("Rome", "41", "Bonn", "42"))):
        text = template.render(messages, tools=TOOLS, in_words=True)
        assert [w for w in ("weather", "Looks.", *words) if w not in text] == []
        assert [w for w in ('\\"city', "'city'", "None") if w in text] == []
    told = template.render([{"role": "system", "content": "Be brief."}, USER], tools=TOOLS, in_words=True)
    assert "Be brief." in told and "Looks." in told
