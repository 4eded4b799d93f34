"""Chat templates: rendered as transformers does it, and nothing that a template does is a traceback."""

import json
from datetime import datetime

import jinja2
import pytest

from duo import Duo, DuoError
from duo.chat.chat_template import ChatTemplate, check_messages, template_of

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "?"}]


def test_the_models_own_template_is_used(duo_pair: Duo) -> None:
    text = duo_pair.chat_template.render(MESSAGES)
    assert text == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
        "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert duo_pair.chat_template.render(MESSAGES, add_generation_prompt=False) == text.removesuffix(
        "<|im_start|>assistant\n"
    )


def test_functions_that_templates_expect_of_transformers_exist() -> None:
    t = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}\n"
        "    {% if loop.index > 2 %}{% break %}{% endif %}\n"
        "{% generation %}{{ m.content | trim }}|{% endgeneration %}\n"
        "{% endfor %}\n"
        "{{ {'b': '<é>', 'a': [1]} | tojson }} {{ tools | tojson(indent=1) }} {{ strftime_now('%Y') }}{{ eos_token }}",
        bos="<s>",
        eos="</s>",
    )
    year = datetime.now().year
    tools = json.dumps([{"name": "f"}], indent=1)
    assert t.render(MESSAGES, tools=[{"name": "f"}]) == f'<s>Hi|Ho|{{"b": "<é>", "a": [1]}} {tools} {year}</s>'


def test_a_missing_value_beside_text_is_no_text_as_in_llama_cpp() -> None:
    """firefunction-v2's template adds `functions`, which most callers do not give."""
    template = ChatTemplate("{{ 'a' + functions + messages[0].content + tools + 'b' }}")
    assert template.render([{"role": "user", "content": "-"}], tools=None) == "a-b"
    with pytest.raises(DuoError, match="fails on this conversation"):
        ChatTemplate("{{ 'a' + 1 }}").render([{"role": "user", "content": "-"}])


def test_names_that_llama_cpp_knows(duo_pair: Duo) -> None:
    for name in ("llama3", "llama-3"):
        t = template_of(duo_pair.target, name)
        assert t.add_special  # BOS is left to the tokenizer
        assert t.render(MESSAGES).startswith("<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>")
    assert ChatTemplate("chatml").render(MESSAGES) == duo_pair.chat_template.render(MESSAGES)


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert check_messages([{"role": "user", "content": parts}])[0]["content"] == "a\nb"


@pytest.mark.parametrize("messages,why", [
    ([], "at least one"),
    ("Hi", "list of messages"),
    ([{"content": "x"}], "message 0 has no role"),
    ([{"role": "user"}], "message 0 has no content"),
    ([{"role": "user", "content": "a\ud800"}], "message 0 is not valid Unicode"),
    ([{"role": "user", "content": 3}], "content of message 0 is int"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "text and pictures"),
])  # fmt: skip
def test_bad_messages_are_one_sentence(duo_pair: Duo, messages: object, why: str) -> None:
    with pytest.raises(DuoError, match=why):
        duo_pair.chat_template.render(messages)


@pytest.mark.parametrize("source,why", [
    ("{{ foo", "line 1 of the chat template is not jinja2"),
    ("{% for %}", "not jinja2"),
    ("{% for a in b %}" * 25 + "{% endfor %}" * 25, "cannot be compiled"),
    ("{{ " + "9" * 5000 + " }}", "cannot be compiled"),
    ("nonsense", "unknown chat template 'nonsense'"),
    ("", "unknown chat template ''"),
    ("{{ raise_exception('roles must\nalternate') }}", "refuses this conversation: roles must alternate"),
    ("{{ ''.__class__.__mro__ }}", "does something that is forbidden"),
    ("{{ messages.clear() }}", "forbidden"),
    ("{{ messages[0].content.format_map(1, 2) }}", "fails on this conversation"),
    ("{{ messages[7].content + 1 }}", "fails on this conversation"),
    ("{% for i in range(10**9) %}{% endfor %}", "fails on this conversation"),
    ("{% include 'x' %}", "fails on this conversation"),
])  # fmt: skip
def test_a_template_error_is_one_sentence(source: str, why: str) -> None:
    with pytest.raises(DuoError) as e:
        ChatTemplate(source).render(MESSAGES)
    assert why in str(e.value)
    assert "\n" not in str(e.value)
    assert not isinstance(e.value, jinja2.TemplateError)


def test_an_answer_that_a_client_sends_back_makes_the_prompt_that_it_was_part_of() -> None:
    answer = {"role": "assistant", "content": "Once."}
    returned = {**answer, "refusal": None, "annotations": []}
    assert check_messages([returned]) == [answer]
    assert check_messages([{**answer, "refusal": "no"}]) == [{**answer, "refusal": "no"}]
