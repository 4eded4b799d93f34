"""A conversation as a prompt, and what the answer to it must look like and is read as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from duo.chat.chat_template import ChatTemplate, check_messages
from duo.chat.reading import AnswerReader, CallReader
from duo.compat.llama_cpp.answer import Reading, Spelled
from duo.compat.llama_cpp.tools import Choice, choice_of
from duo.errors import BadValueError
from duo.support.same import n_same
from duo.support.wording import quoted


def schema_of(response_format: object) -> Any:
    """The schema that OpenAI's response_format asks for; None: any text. Raises BadValueError."""
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    form = cast("Mapping[str, Any]", response_format)
    if kind == "json_object":
        schema = form.get("schema")
        return {} if schema is None else schema
    if kind == "json_schema":
        inner = form.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, Mapping) else form.get("schema")
        if schema is None:
            raise BadValueError(
                "response_format has no schema; write {'type': 'json_schema', 'json_schema': {'schema': S}}"
            )
        return schema
    raise BadValueError(f"response_format is {quoted(response_format)}; its type is text, json_object or json_schema")


@dataclass(frozen=True)
class ChatPrompt:
    """The prompt of a chat, and how to read the answer."""

    text: str  # what the template made
    tokens: list[int]
    shape: Mapping[str, Any]  # keywords of `stream` that go with it; without a grammar: any text
    choice: Choice
    reasoning: bool  # thoughts are no part of the answer
    single: bool = False  # it has one call of a tool at most

    @property
    def is_read(self) -> bool:
        """Whether the answer may have parts other than text."""
        return bool(self.reasoning or self.choice.names)

    def reading(self, spelled: Spelled) -> Reading:
        """A reader of one answer, whose text is `spelled`. Calls of tools come in pieces."""
        if self.choice.named:
            reader: AnswerReader | CallReader = CallReader(self.choice.named)
        else:
            reader = AnswerReader(self.text, reasoning=self.reasoning, tools=self.choice.schemas, single=self.single)
        return Reading(spelled, reader)


@dataclass(frozen=True)
class ChatRequest:
    """The arguments of a chat except the messages and the sampling."""

    tools: Any = None
    tool_choice: Any = None
    functions: Any = None  # the old name of tools
    function_call: Any = None
    response_format: Any = None
    reasoning: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)  # of the template
    prefill: bool = False  # an answer that stands last is to go on
    single: bool = False  # one call of a tool at most
    in_words: bool = False  # tools for which the template has no place are described; llama_cpp leaves them out


def chat_prompt(
    template: ChatTemplate,
    tokenize: Callable[[str, bool], list[int]],
    messages: object,
    request: ChatRequest,
    *,
    marked: bool = False,
) -> ChatPrompt:
    """tokenize: (text, with BOS) -> ids. marked: the target should keep its state before the last user message, because
    that is often edited. Raises BadValueError."""
    of_tools = {"tools": request.tools, "tool_choice": request.tool_choice}
    of_tools |= {"functions": request.functions, "function_call": request.function_call}
    choice = choice_of(**of_tools)
    of_tools["in_words"] = request.in_words
    schema = choice.schema if choice.schema is not None else schema_of(request.response_format)
    if choice.forbidden or (choice.schema is not None and template.add_special):
        of_tools["tools"] = None  # where a grammar shapes the answer, a template may leave them out
    if request.prefill:
        text = _with_beginning(template, messages, {**of_tools, **request.variables})
    else:
        text = template.render(messages, **{**of_tools, **request.variables})
    shape: dict[str, Any] = {} if schema is None else {"grammar": None, "json_schema": schema}
    tokens = tokenize(text, template.add_special)
    if marked:
        before = _before_last_user(template, messages, {**of_tools, **request.variables})
        same = text[: n_same(before, text)]
        shape["prompt_mark"] = n_same(tokenize(same, template.add_special), tokens) if same else 0
    return ChatPrompt(text, tokens, shape, choice, request.reasoning, request.single)


def _before_last_user(template: ChatTemplate, messages: object, variables: Mapping[str, Any]) -> str:
    """The messages before the user's last one, as the template writes them; empty: there are none."""
    checked = check_messages(messages)
    last = max((i for i, m in enumerate(checked) if m["role"] == "user"), default=0)
    try:
        return template.render(checked[:last], add_generation_prompt=False, **variables) if last else ""
    except BadValueError:  # some templates want a question at the end
        return ""


def _with_beginning(template: ChatTemplate, messages: object, variables: Mapping[str, Any]) -> str:
    """The prompt; an answer that stands last is its end, as in llama-server."""
    checked = check_messages(messages)
    is_answer = [m["role"] == "assistant" and not m.get("tool_calls") for m in checked[-2:]]
    if not is_answer[-1]:
        return template.render(checked, **variables)
    if len(checked) == 1:
        raise BadValueError("the conversation is nothing but the beginning of an answer; put a question before it")
    if is_answer[0]:
        raise BadValueError(
            "the last two messages are both the assistant's; only one can be the beginning of the answer"
        )
    # The head of the answer is needed, even if the request has add_generation_prompt false.
    headed = {**variables, "add_generation_prompt": True}
    begun = check_messages(cast("Sequence[object]", messages)[-1:], between="\n\n")
    return template.render(checked[:-1], **headed) + (begun[0]["content"] or "")
