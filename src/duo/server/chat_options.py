"""What a chat request asks for, in any of the dialects, as duo's own chats take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duo.chat.pictures import is_seen
from duo.chat.reading import reasoning_of
from duo.chat.thinking import EFFORT, THINKS, dates, with_thinking
from duo.compat.llama_cpp.answer import Spelled
from duo.compat.llama_cpp.chat_prompt import ChatPrompt, ChatRequest
from duo.errors import BadValueError
from duo.server.build_jobs import texts_of
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.model import Duo
    from duo.server.schemas import ChatFields, TextFields
    from duo.server.settings import ServerSettings
    from duo.server.text import ServedText

UNSEEN = {"type": "text", "text": "[a picture that this model cannot see]"}
EFFORTS_OFF = ("none", "off")


def chat_request(f: ChatFields, duo: Duo, settings: ServerSettings) -> ChatRequest:
    """Of OpenAI's fields. Raises BadValueError."""
    tools = f.tools if f.tools is None else [_function(i, t) for i, t in enumerate(f.tools)]
    return ChatRequest(
        tools=tools or None,
        tool_choice=None if not tools and f.tool_choice == "auto" else f.tool_choice,
        functions=f.functions,
        function_call=f.function_call,
        response_format=f.response_format,
        reasoning=settings.reasoning if f.reasoning_format is None else reasoning_of(f.reasoning_format),
        variables=variables_of(f, duo, settings),
        prefill=_continues(f) or settings.prefills,
        single=f.parallel_tool_calls is False,
        in_words=True,
    )


def _continues(f: ChatFields) -> bool:
    """Whether the request says that the answer that stands last is to go on (tools/server/server-common.cpp).

    Raises BadValueError.
    """
    value = f.continue_final_message
    if value not in (None, False, True, "content"):
        raise BadValueError(f"continue_final_message is {quoted(value)}; give true, false or 'content'")
    if not value:
        return False
    if f.add_generation_prompt:
        raise BadValueError("add_generation_prompt and continue_final_message exclude each other; give one of them")
    last = (f.messages or [{}])[-1]
    if last.get("role") != "assistant" or last.get("tool_calls"):
        raise BadValueError("continue_final_message needs an assistant's message without calls of tools at the end")
    return True


def _function(i: int, tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if tool.get("type", "function") != "function":
        raise BadValueError(f"tool {i} is of type {quoted(tool.get('type'))}; duo knows functions only")
    return tool


def variables_of(f: ChatFields, duo: Duo, settings: ServerSettings) -> dict[str, Any]:
    """Of the template: the request's, the server's, the request's reasoning_effort, the server's --reasoning, of which
    the first counts. Raises BadValueError."""
    template = duo.chat_template
    variables = {**settings.variables, **template.check_variables(f.chat_template_kwargs)}
    if f.reasoning_effort is not None:
        if f.reasoning_effort in EFFORTS_OFF:
            variables = with_thinking(variables, template, {THINKS: False})
        else:
            variables = with_thinking(variables, template, {EFFORT: f.reasoning_effort})
    if f.add_generation_prompt is not None:
        variables["add_generation_prompt"] = f.add_generation_prompt
    return with_thinking(variables, template, {**settings.thoughts, **dates()})


def prompt_of(f: ChatFields, duo: Duo, settings: ServerSettings) -> ChatPrompt:
    """Raises BadValueError."""
    if f.messages is None:
        raise BadValueError("the request has no messages; write [{'role': 'user', 'content': '...'}]")
    projector = duo.local_model.projector
    messages = _messages(f.messages, sees=projector is not None and projector.sees)
    return duo.chat_prompt(messages, chat_request(f, duo, settings), settings.media.file)


def _messages(sent: Sequence[Mapping[str, Any]], *, sees: bool) -> list[Mapping[str, Any]]:
    """null is an empty content, and developer another name of system. sees: the model reads pictures; otherwise those
    in results of tools are only mentioned, because the client cannot take them back."""
    out: list[Mapping[str, Any]] = []
    for m in sent:
        fixed = {k: v for k, v in m.items() if v is not None or k == "content"}
        if fixed.get("role") == "developer":
            fixed["role"] = "system"
        if fixed.get("role") == "assistant" and fixed.get("content", 0) in (None, 0) and not fixed.get("tool_calls"):
            fixed["content"] = ""
        if fixed.get("role") == "tool" and not sees and isinstance(fixed.get("content"), list):
            fixed["content"] = [UNSEEN if is_seen(part) else part for part in fixed["content"]]
        out.append(fixed)
    return out


def chat_texts(f: ChatFields, duo: Duo, settings: ServerSettings) -> list[ServedText]:
    """The texts of a chat request. Raises BadValueError, ApiError."""
    prompt = prompt_of(f, duo, settings)
    shape = dict(prompt.shape)
    if f.logprobs:
        shape["logprobs"] = _n_top(f.top_logprobs)
    elif f.top_logprobs:
        raise BadValueError("top_logprobs needs logprobs; give logprobs: true as well")
    is_read = prompt.is_read and settings.parses
    reading = (lambda: prompt.reading(Spelled(duo.local_model))) if is_read else None
    return texts_of(duo, f, [(prompt.text, prompt.tokens)], shape=shape, reading=reading)


def _n_top(n: int | None) -> int:
    if not 0 <= (n or 0) <= 100:
        raise BadValueError(f"top_logprobs is {n}; give 0 to 100")
    return n or 0


def count_of(f: TextFields) -> int:
    """Texts that a request with one prompt is for; at least 1, so that a bad number is refused later, by its words."""
    return max(1, min(f.n if f.n is not None else f.n_cmpl or 1, 1024))
