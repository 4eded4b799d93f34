"""Chats in llama_cpp's (OpenAI's) shape: messages become a prompt, what the model writes becomes an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, overload

from typing_extensions import Unpack

from duo.chat.chat_template import ChatTemplate, template_of
from duo.chat.reading import reasoning_of
from duo.compat.llama_cpp import chat_formats
from duo.compat.llama_cpp.answer import Answer
from duo.compat.llama_cpp.chat_answer import as_call, as_call_parts, as_chat, as_chat_parts, as_read, as_read_parts
from duo.compat.llama_cpp.chat_prompt import ChatAsked, ChatPrompt, chat_prompt, schema_of
from duo.compat.llama_cpp.completion import if_asked, of_llama
from duo.compat.llama_cpp.evaluation import Evaluation
from duo.compat.llama_cpp.members import PLACES_OF_CHAT, by_name
from duo.compat.llama_cpp.openai import ChatChunk, ChatCompletion
from duo.errors import BadValueError, MissingPackageError
from duo.generation.texts import own_defaults
from duo.grammar.grammar import grammar_of_schema
from duo.options.llama_cpp import ChatOptions
from duo.options.signature import keywords
from duo.options.tables import GENERATE_OPTIONS
from duo.support.wording import quoted

OF_TOOLS = ("tools", "tool_choice", "functions", "function_call")
DEFAULTS: dict[str, Any] = {"temperature": 0.2}
# Arguments of create_chat_completion that llama_cpp's handlers do not get from a stream's keywords.
OF_HANDLERS: dict[str, Any] = {
    "functions": None, "function_call": None, "tools": None, "tool_choice": None, "temperature": 0.2, "top_p": 0.95,
    "top_k": 40, "min_p": 0.05, "typical_p": 1.0, "stream": False, "stop": [], "seed": None, "max_tokens": None,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "repeat_penalty": 1.0, "model": None, "grammar": None,
    "logit_bias": None, "logprobs": None, "top_logprobs": None, "response_format": None,
    "logits_processor": None,
}  # fmt: skip


def _is_unicode(text: str) -> bool:
    try:
        return text.encode() is not None
    except UnicodeEncodeError:
        return False


class Chats(Evaluation):
    """llama_cpp.Llama's way to talk. `Duo` sets what it was given when it loads."""

    _chat_template: str | None  # jinja2, or a known name; None: the model's own
    _handler: chat_formats.Handler | None  # llama_cpp's, in place of a template
    _format: str | None  # llama_cpp's name
    _template: ChatTemplate | None = None

    def _choose_chat(self, given: dict[str, Any]) -> None:
        """Takes the keywords of prompts (chat_template, chat_format, ...) out of the others. Raises BadValueError."""
        template, name = given.pop("chat_template", None), given.pop("chat_format", None)
        for what, value in (("chat_template", template), ("chat_format", name)):
            if value is not None and not (isinstance(value, str) and _is_unicode(value)):
                raise BadValueError(f"{what} is {quoted(value)}; give text")
        self._handler = chat_formats.check_handler(given.pop("chat_handler", None))
        if self._handler is None and template is None and name is not None:
            self._handler = chat_formats.handler_of(name)
        self._format = name
        self._template = None
        self._chat_template = template if template is not None or self._handler is not None else name

    @property
    def chat_format(self) -> str | None:
        """llama_cpp's name of a chat format, as it was given; None: a template makes the prompt."""
        return self._format

    @chat_format.setter
    def chat_format(self, name: str | None) -> None:
        """A chat with an unknown name is a BadValueError, as in llama_cpp."""
        self._choose_chat({"chat_format": name})

    @property
    def chat_handler(self) -> chat_formats.Handler | None:
        """The function that makes the prompt and the answer in place of a template; None: there is none."""
        return self._handler

    @chat_handler.setter
    def chat_handler(self, handler: object) -> None:
        """Raises BadValueError: it is none, or one for images."""
        self._choose_chat({"chat_handler": handler})

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template, or the one given to `Duo`. Raises BadValueError if there is none."""
        if self._template is None:
            self._template = template_of(self.local_model, self._chat_template)
        return self._template

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

    @keywords(ChatOptions, PLACES_OF_CHAT, **DEFAULTS)
    def create_chat_completion(
        self, messages: Sequence[Mapping[str, Any]], *places: Any, stream: bool | None = False, **options: Any
    ) -> ChatCompletion | Iterator[ChatChunk]:
        """An answer, as llama_cpp.Llama.create_chat_completion: a dict, or with `stream` an iterator of dicts.

        messages: `{"role", "content"}` each; the chat template makes the prompt of them and of `tools`. max_tokens:
        tokens; None, 0 or less: no limit. logprobs: with log-probabilities in nats, top_logprobs alternatives for each
        token. response_format: text, json_object or json_schema. chat_template_kwargs: variables of the template, as
        enable_thinking; those that it names may be given as keywords, too. tools: the answer's calls become tool_calls;
        tool_choice: none, auto, required or a tool by name, whose arguments the answer then is. reasoning_format: with
        auto or deepseek thoughts become reasoning_content. The other keywords are those of `generate`.
        Arguments by place come in llama_cpp's order.

        Raises TypeError (unknown keyword) and DuoError: BadValueError (a value, the messages, no template),
        ContextFullError, and as `stream`.
        """
        options = by_name("create_chat_completion", PLACES_OF_CHAT, places, {**options, **if_asked(stream)})
        if self._handler is not None:
            answer: ChatCompletion | Iterator[ChatChunk] = self._handled(self._handler, messages, options)
            return answer
        return self._templated(messages, options)

    def _handled(self, handler: chat_formats.Handler, messages: Any, options: dict[str, Any]) -> Any:
        """As llama_cpp.Llama calls it: with every argument."""
        for name in ("chat_template_kwargs", "reasoning_format"):
            if options.pop(name, None) not in (None, "none"):
                raise BadValueError(
                    f"{name} is for a template, and llama_cpp's chat formats are none; give chat_template"
                )
        schema = schema_of(options.pop("response_format", None))
        asked = {name: options.pop(name) for name in PLACES_OF_CHAT if name in options}
        of_llama({}, "create_chat_completion", {k: v for k, v in asked.items() if k not in OF_HANDLERS}, {})
        of_all = {name: value for name, value in self.defaults.items() if name in OF_HANDLERS}
        own = of_llama(
            {k: v for k, v in self.defaults.items() if k not in of_all}, "create_chat_completion", options, {}
        )
        if schema is not None:
            own["grammar"] = grammar_of_schema(schema)
        whole = {**OF_HANDLERS, **of_all, **{k: v for k, v in asked.items() if k in OF_HANDLERS}}
        return chat_formats.handled(handler, self, {"messages": messages, **whole}, own)

    def _templated(self, messages: Any, options: dict[str, Any]) -> ChatCompletion | Iterator[ChatChunk]:
        stream, model = options.pop("stream", None), options.pop("model", None)
        logprobs, top_logprobs = options.pop("logprobs", None), options.pop("top_logprobs", None)
        asked = ChatAsked(
            **{name: options.pop(name, None) for name in (*OF_TOOLS, "response_format")},
            reasoning=reasoning_of(options.pop("reasoning_format", None)),
            variables=self._variables(options),
        )
        options |= self.drawn_seed(options)
        wanted = of_llama(own_defaults(self, options), "create_chat_completion", options, DEFAULTS)
        prompt = self.chat_prompt(messages, asked)
        wanted |= prompt.shape
        if logprobs:
            wanted["logprobs"] = top_logprobs or 0
        stream_of = self.stream(prompt.tokens, **wanted)
        answer = Answer(self.local_model, stream_of, "", len(prompt.tokens), model)
        if named := prompt.choice.named:
            return as_call_parts(answer.parts(), named) if stream else as_call(answer.whole(echo=False), named)
        if prompt.is_read:
            if stream:
                return as_read_parts(answer, prompt.reading(answer.spelled))
            return as_read(answer, prompt.reader())
        return as_chat_parts(answer.parts()) if stream else as_chat(answer.whole(echo=False))

    def _variables(self, options: dict[str, Any]) -> dict[str, Any]:
        """Takes the template's variables out of the options. Raises BadValueError."""
        template = self.chat_template
        variables = template.check_variables(options.pop("chat_template_kwargs", None))
        return variables | {
            n: options.pop(n) for n in [*options] if n in template.variables and n not in GENERATE_OPTIONS
        }

    def chat_prompt(self, messages: object, asked: ChatAsked) -> ChatPrompt:
        """A conversation as this model's template writes it. Raises BadValueError."""
        target = self.engine.target
        return chat_prompt(
            self.chat_template,
            lambda text, bos: self.tokenize(text, add_bos=bos, special=True),
            messages,
            asked,
            marked=target is not None and not target.can_rollback,
        )

    def create_chat_completion_openai_v1(self, *places: Any, **options: Any) -> Any:
        """`create_chat_completion` as objects of the openai package. Raises MissingPackageError."""
        try:
            theirs = import_module("openai.types.chat")
        except ImportError:
            raise MissingPackageError(
                "create_chat_completion_openai_v1 needs the openai package; pip install openai"
            ) from None
        found = self.create_chat_completion(*places, **options)
        if isinstance(found, dict):
            return theirs.ChatCompletion(**found)
        return (theirs.ChatCompletionChunk(**part) for part in found)
