"""Completions in llama_cpp's (OpenAI's) shape: code written for llama_cpp.Llama runs with duo.Duo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from typing_extensions import Unpack

from duo.api.answer import Answer, as_chat, as_chat_parts
from duo.api.llama_cpp_members import PLACES_OF_CHAT, PLACES_OF_COMPLETION, LlamaMembers, by_name
from duo.api.openai import ChatChunk, ChatCompletion, Completion, CompletionChunk
from duo.errors import BadValue
from duo.options.llama_cpp import ChatOptions, CompletionOptions
from duo.options.signature import keywords
from duo.options.tables import GENERATE_OPTIONS
from duo.prompt.chat_template import ChatTemplate, template_of

if TYPE_CHECKING:
    from duo.text.job import Prompt

# llama_cpp's arguments that duo has nothing like: with these values they change nothing.
NEUTRAL: dict[str, Any] = {
    "suffix": None,
    "typical_p": 1.0,
    "mirostat_mode": 0,
    "stopping_criteria": None,
    "logits_processor": None,
    "functions": None,
    "function_call": None,
}
WITHOUT_EFFECT = ("tfs_z", "mirostat_tau", "mirostat_eta")  # llama.cpp has no such samplers, or they are off
OF_CHAT = ("functions", "function_call")
OF_ANSWER = ("response_format", "logprobs", "top_logprobs")
DEFAULTS: dict[str, Any] = {"max_tokens": 16}
CHAT_DEFAULTS: dict[str, Any] = {"temperature": 0.2}


def _options(own: Mapping[str, Any], function: str, given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `Duo.stream`. Raises TypeError (unknown keyword) and BadValue (not supported)."""
    options = {**defaults, **own}
    for name, value in given.items():
        foreign = name in NEUTRAL and (name not in OF_CHAT or defaults is CHAT_DEFAULTS)
        if foreign and value != NEUTRAL[name]:
            raise BadValue(f"{function} got {name}={value!r}, which duo does not support; leave {name} out")
        if foreign or name in WITHOUT_EFFECT:
            continue
        if name not in GENERATE_OPTIONS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if name == "max_tokens":
            unlimited = value is None or (isinstance(value, int) and value <= 0)
            options[name] = -1 if unlimited else value
        elif value is not None:
            options[name] = value
    return options


def schema_of(response_format: object) -> Any:
    """The schema that OpenAI's response_format asks for; None: any text. Raises BadValue."""
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    asked = cast("Mapping[str, Any]", response_format)
    if kind == "json_object":
        schema = asked.get("schema")
        return {} if schema is None else schema
    if kind == "json_schema":
        inner = asked.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, Mapping) else asked.get("schema")
        if schema is None:
            raise BadValue("response_format has no schema; write {'type': 'json_schema', 'json_schema': {'schema': S}}")
        return schema
    raise BadValue(f"response_format is {response_format!r}; its type is text, json_object or json_schema")


def _if_asked(stream: bool | None) -> dict[str, bool]:
    return {"stream": stream} if stream else {}


class Completions(LlamaMembers):
    """llama_cpp.Llama's way to ask."""

    _chat_template: str | None  # jinja2, or a known name; None: the model's own
    _template: ChatTemplate | None = None

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template, or the one given to `Duo`. Raises BadValue if there is none."""
        if self._template is None:
            self._template = template_of(self.local_model, self._chat_template)
        return self._template

    @overload
    def create_completion(
        self, prompt: Prompt, *places: Any, stream: Literal[False] | None = False, **options: Unpack[CompletionOptions]
    ) -> Completion: ...

    @overload
    def create_completion(
        self, prompt: Prompt, *places: Any, stream: Literal[True], **options: Unpack[CompletionOptions]
    ) -> Iterator[CompletionChunk]: ...

    @overload
    def create_completion(
        self, prompt: Prompt, *places: Any, stream: bool | None, **options: Unpack[CompletionOptions]
    ) -> Completion | Iterator[CompletionChunk]: ...

    @keywords(CompletionOptions, PLACES_OF_COMPLETION, **DEFAULTS)
    def create_completion(
        self, prompt: Prompt, *places: Any, stream: bool | None = False, **options: Any
    ) -> Completion | Iterator[CompletionChunk]:
        """A text for a prompt, as llama_cpp.Llama.create_completion: a dict, or with `stream` an iterator of dicts.

        prompt: text, or token ids. max_tokens: tokens; None, 0 or less: no limit. logprobs: so many alternatives for
        each token, in nats. echo: the prompt stands before the text. model: the name that the dicts carry, else the
        target's path. The other keywords are those of `generate`; `Duo`'s own are the defaults. Arguments by place
        come in llama_cpp's order.

        Raises TypeError (unknown keyword) and DuoError: BadValue (a value or the prompt), ContextFull, and as `stream`.
        """
        options = by_name("create_completion", PLACES_OF_COMPLETION, places, {**options, **_if_asked(stream)})
        stream, echo, model = (options.pop(name, None) for name in ("stream", "echo", "model"))
        wanted = _options(self.defaults, "create_completion", options, DEFAULTS)
        if echo and wanted.get("logprobs") is not None:
            raise BadValue("duo has no log-probabilities of the prompt; leave out echo or logprobs")
        bos = self.local_model.token_bos
        empty = isinstance(prompt, str) and not prompt and bos >= 0
        tokens = [bos] if empty else self.tokenize(prompt) if isinstance(prompt, str) else prompt
        begun = self.stream(tokens, **wanted)  # checks the prompt
        text = prompt if isinstance(prompt, str) else ""
        if not isinstance(prompt, str) and (echo or begun.with_logprobs):  # offsets count from the prompt's begin
            text = self.detokenize([int(t) for t in prompt])
        answer = Answer(self.local_model, begun, text, len(tokens), model)
        return answer.parts() if stream else answer.whole(echo=bool(echo))

    __call__ = create_completion

    @overload
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *places: Any,
        stream: Literal[False] | None = False,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion: ...

    @overload
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *places: Any,
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> Iterator[ChatChunk]: ...

    @overload
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *places: Any,
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | Iterator[ChatChunk]: ...

    @keywords(ChatOptions, PLACES_OF_CHAT, **CHAT_DEFAULTS)
    def create_chat_completion(
        self, messages: Sequence[Mapping[str, Any]], *places: Any, stream: bool | None = False, **options: Any
    ) -> ChatCompletion | Iterator[ChatChunk]:
        """An answer, as llama_cpp.Llama.create_chat_completion: a dict, or with `stream` an iterator of dicts.

        messages: `{"role", "content"}` each; the chat template makes the prompt of them and of `tools`. max_tokens:
        tokens; None, 0 or less: no limit. logprobs: with log-probabilities in nats, top_logprobs alternatives for each
        token. response_format: text, json_object or json_schema. The other keywords are those of `generate`. Arguments
        by place come in llama_cpp's order.

        Raises TypeError (unknown keyword) and DuoError: BadValue (a value, the messages, no template), ContextFull, and
        as `stream`.
        """
        options = by_name("create_chat_completion", PLACES_OF_CHAT, places, {**options, **_if_asked(stream)})
        stream, model, tools, tool_choice = (options.pop(n, None) for n in ("stream", "model", "tools", "tool_choice"))
        response_format, logprobs, top_logprobs = (options.pop(n, None) for n in OF_ANSWER)
        wanted = _options(self.defaults, "create_chat_completion", options, CHAT_DEFAULTS)
        if tool_choice not in (None, "auto", "none"):
            raise BadValue(
                f"tool_choice is {tool_choice!r}; duo knows auto and none, and json_schema= shapes an answer"
            )
        if (schema := schema_of(response_format)) is not None:
            wanted |= {"grammar": None, "json_schema": schema}
        if logprobs:
            wanted["logprobs"] = top_logprobs or 0
        template = self.chat_template
        text = template.render(messages, tools=None if tool_choice == "none" else tools)
        tokens = self.tokenize(text, add_special=template.add_special)
        answer = Answer(self.local_model, self.stream(tokens, **wanted), "", len(tokens), model)
        return as_chat_parts(answer.parts()) if stream else as_chat(answer.whole(echo=False))
