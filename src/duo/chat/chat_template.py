"""Chat templates turn messages into a prompt, in the form that the model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from duo import _core
from duo.chat.fitted_messages import fitted
from duo.chat.template_traits import TemplateTraits
from duo.errors import BadValueError
from duo.support.wording import quoted

Message = Mapping[str, Any]

# llama-cpp-python's names (chat_format) for templates that have other names in llama.cpp.
OTHER_NAMES = {"llama-2": "llama2-sys", "llama-3": "llama3", "llama-4": "llama4", "mistral-instruct": "mistral-v1"}
OF_RENDER = frozenset(("self", "messages"))  # a conversation makes these
HOW = "give one with --chat-template (chatml, llama3, ...) or --chat-template-file"


def check_messages(messages: object, between: str = "\n") -> list[dict[str, Any]]:
    """Messages with their content as text. between: parts of a content, as in llama.cpp (common/chat.cpp). Raises
    BadValueError."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise BadValueError(
            "a conversation is a list of messages, at least one; write [{'role': 'user', 'content': '...'}]"
        )
    return [_message(i, m, between) for i, m in enumerate(messages)]


def _message(i: int, m: object, between: str) -> dict[str, Any]:
    if not isinstance(m, Mapping) or not isinstance(m.get("role"), str):
        raise BadValueError(f"message {i} has no role; write it as {{'role': 'user', 'content': '...'}}")
    content = m.get("content")
    if isinstance(content, list | tuple):
        parts = [p.get("text") if isinstance(p, Mapping) and p.get("type") == "text" else None for p in content]
        if not all(isinstance(p, str) for p in parts):
            raise BadValueError(f"message {i} holds something other than text and pictures; duo reads nothing else")
        content = between.join(p for p in parts if isinstance(p, str))
    if content is None and "tool_calls" not in m and "function_call" not in m:
        raise BadValueError(f"message {i} has no content; give it some text")
    if content is not None and not isinstance(content, str):
        raise BadValueError(f"the content of message {i} is {type(content).__name__}; give text")
    try:
        f"{m['role']}{content or ''}".encode()
    except UnicodeEncodeError:
        raise BadValueError(f"message {i} is not valid Unicode; decode it as UTF-8") from None
    # Clients send an answer back with these, and a template that prints all of a message would print them.
    kept = {k: v for k, v in m.items() if v or k not in ("refusal", "annotations")}
    return {**kept, "content": content}


class ChatTemplate:
    """A compiled template. source: jinja2, or the name of a template in libllama. Raises BadValueError."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        self.source, self._bos, self._eos = source, bos, eos
        self.name = OTHER_NAMES.get(source, source)
        # libllama's templates write no BOS and leave it to the tokenizer. jinja2 templates write all special tokens.
        self.add_special = self.name in _core.chat_templates()
        self.variables: frozenset[str] = frozenset()  # that a caller may set
        self.traits: TemplateTraits | None = None  # None: libllama's, which have no place for tools
        if self.add_special:
            return
        if "{" not in source:
            names = ", ".join(_core.chat_templates())
            raise BadValueError(f"unknown chat template {quoted(source)}; write one in jinja2, or choose from {names}")
        from duo.chat.jinja_template import JinjaTemplate  # most runs of the program need no jinja2

        self._template = JinjaTemplate(source, HOW)
        self.variables = self._template.variables
        self.traits = TemplateTraits(lambda messages, tools: self._written(messages, {"tools": tools}))

    def check_variables(self, variables: object) -> dict[str, Any]:
        """The variables that a caller gives. Raises BadValueError: they are no dict, or this template cannot have
        them."""
        if variables is None:
            return {}
        if not isinstance(variables, Mapping) or not all(isinstance(name, str) for name in variables):
            raise BadValueError("the variables of a chat template are a dict by name; write {'enable_thinking': False}")
        if reserved := OF_RENDER & variables.keys():
            raise BadValueError(f"{min(reserved)} is no variable of a chat template that can be given; leave it out")
        if self.add_special and variables:
            raise BadValueError(
                f"the chat template {self.name} has no variables ({', '.join(variables)}); leave them out, or give a "
                "jinja2 template"
            )
        return dict(variables)

    def render(
        self, messages: object, *, add_generation_prompt: bool = True, in_words: bool = False, **more: Any
    ) -> str:
        """The prompt. in_words: tools and calls for which the template has no place become text; otherwise they are
        left out, as in llama_cpp. more: other variables of the template (tools, enable_thinking, ...). Raises
        BadValueError."""
        checked = check_messages(messages)
        if self.traits is None:
            if more.get("tools"):
                raise BadValueError(
                    f"the chat template {self.name} has no place for tools; leave out tools, or give a jinja2 template"
                )
            plain = [(m["role"], m["content"] or "") for m in checked]
            if any("\0" in part for m in plain for part in m):
                raise BadValueError("a message holds a NUL character; remove it")
            return _core.apply_chat_template(self.name, plain, add_generation_prompt)
        try:
            messages, tools = fitted(checked, more.get("tools"), self.traits, in_words=in_words)
        except RecursionError:
            raise BadValueError("the tools or their calls are nested too deeply; simplify them") from None
        return self._written(messages, {**more, "add_generation_prompt": add_generation_prompt, "tools": tools})

    def _written(self, messages: list[dict[str, Any]], more: Mapping[str, Any]) -> str:
        """What the template makes of messages and variables as they are."""
        variables = {"add_generation_prompt": True, "documents": None, "bos_token": self._bos, "eos_token": self._eos}
        variables |= more
        if more["tools"] and {"functions", "tools"} & self.variables == {"functions"} and not more.get("functions"):
            variables["functions"] = json.dumps(more["tools"], ensure_ascii=False, indent=2)  # firefunction's text
        return self._template.render({"messages": messages} | variables)


def template_of(target: _core.Model, chosen: str | None = None) -> ChatTemplate:
    """The template in the model's file. chosen: jinja2, a known name, or a name in the file. Raises BadValueError."""
    bos, eos = (target.piece(t, True).decode("utf-8", "replace") if t >= 0 else "" for t in _ends(target))
    if chosen is not None:
        return ChatTemplate(target.meta(f"tokenizer.chat_template.{chosen}") or chosen, bos=bos, eos=eos)
    source = target.meta("tokenizer.chat_template")
    if not source:
        raise BadValueError(f"{Path(target.path).name} has no chat template, like most base models; {HOW}")
    return ChatTemplate(source, bos=bos, eos=eos)


def _ends(target: _core.Model) -> tuple[int, int]:
    return target.token_bos, target.token_eos
