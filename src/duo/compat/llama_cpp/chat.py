"""Chats in llama_cpp's (OpenAI's) shape: messages become a prompt, what the model writes becomes an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, overload

from typing_extensions import Unpack

from duo.chat.chat_template import ChatTemplate, template_of
from duo.chat.pictures import Fetch, Pictures, data_url
from duo.chat.reading import reasoning_of
from duo.compat.llama_cpp import chat_formats
from duo.compat.llama_cpp.answer import CompletionAnswer
from duo.compat.llama_cpp.chat_answer import ChatAnswer, NamedCallAnswer
from duo.compat.llama_cpp.chat_prompt import ChatPrompt, ChatRequest, chat_prompt, schema_of
from duo.compat.llama_cpp.completion import stream_keyword, text_keywords
from duo.compat.llama_cpp.evaluation import Evaluation
from duo.compat.llama_cpp.members import CHAT_ARGUMENTS, merged_arguments
from duo.compat.openai.shapes import ChatChunk, ChatCompletion
from duo.errors import BadValueError, MissingPackageError
from duo.generation.begin import checked, open_stream
from duo.generation.pictures import seen_tokens
from duo.generation.texts import text_defaults
from duo.grammar.grammar import grammar_of_schema
from duo.options.llama_cpp import ChatOptions
from duo.options.signature import keywords
from duo.options.tables import GENERATE_OPTIONS
from duo.options.validate import check_keywords
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

    def _choose_chat(self, options: dict[str, Any]) -> None:
        """Takes the keywords of prompts (chat_template, chat_format, ...) out of the others. Raises BadValueError."""
        template, name = options.pop("chat_template", None), options.pop("chat_format", None)
        for what, value in (("chat_template", template), ("chat_format", name)):
            if value is not None and not (isinstance(value, str) and _is_unicode(value)):
                raise BadValueError(f"{what} is {quoted(value)}; give text")
        self._handler = chat_formats.check_handler(options.pop("chat_handler", None))
        if self._handler is None and template is None and name is not None:
            self._handler = chat_formats.handler_of(name)
        self._format = name
        self._template = None
        self._chat_template = template if template is not None or self._handler is not None else name

    @property
    def chat_format(self) -> str | None:
        """llama_cpp's name of the chat format, as it was given. None: a template makes the prompt. It can be set."""
        return self._format

    @chat_format.setter
    def chat_format(self, name: str | None) -> None:
        """With an unknown name, the next chat is a BadValueError, as in llama_cpp."""
        self._choose_chat({"chat_format": name})

    @property
    def chat_handler(self) -> chat_formats.Handler | None:
        """The function that makes prompt and answer in place of a template. None: there is none. It can be set."""
        return self._handler

    @chat_handler.setter
    def chat_handler(self, handler: object) -> None:
        """Raises BadValueError: it is not a handler, or it is one for images."""
        self._choose_chat({"chat_handler": handler})

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template, or the one that `Duo` was given. `render(messages)` makes the prompt.

        Raises:
            BadValueError: There is none.
        """
        if self._template is None:
            self._template = template_of(self.local_model, self._chat_template)
        return self._template

    @overload
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *positional: Any,
        stream: Literal[False] | None = False,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion: ...

    @overload
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *positional: Any,
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> Iterator[ChatChunk]: ...

    @overload
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *positional: Any,
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | Iterator[ChatChunk]: ...

    @keywords(ChatOptions, CHAT_ARGUMENTS, **DEFAULTS)
    def create_chat_completion(
        self, messages: Sequence[Mapping[str, Any]], *positional: Any, stream: bool | None = False, **options: Any
    ) -> ChatCompletion | Iterator[ChatChunk]:
        """Answers a conversation, as llama_cpp.Llama.create_chat_completion does.

        The chat template makes the prompt of the messages and the tools. Positional arguments have llama_cpp's order.
        Variables of the template may be given as keywords.

        Args:
            messages: Dicts with `role` and `content`, as in OpenAI's API.
            stream: Return an iterator of dicts; otherwise one dict.
            **options: Keywords of a chat, and keywords of a text.

        Raises:
            BadValueError: A value or a message is wrong, or the model has no chat template.
            DuoError: What `stream` raises.
        """
        options = merged_arguments(
            "create_chat_completion", CHAT_ARGUMENTS, positional, {**options, **stream_keyword(stream)}
        )
        if self._handler is not None:
            answer: ChatCompletion | Iterator[ChatChunk] = self._handled(self._handler, messages, options)
            return answer
        return self._templated(messages, options)

    def _handled(self, handler: chat_formats.Handler, messages: Any, options: dict[str, Any]) -> Any:
        """Calls the handler as llama_cpp.Llama does: with every argument."""
        for name in ("chat_template_kwargs", "reasoning_format"):
            if options.pop(name, None) not in (None, "none"):
                raise BadValueError(
                    f"{name} needs a chat template, and llama_cpp's chat formats have none; give chat_template"
                )
        schema = schema_of(options.pop("response_format", None))
        arguments = {name: options.pop(name) for name in CHAT_ARGUMENTS if name in options}
        of_all = {name: value for name, value in self.defaults.items() if name in OF_HANDLERS}
        others = {k: v for k, v in arguments.items() if k not in OF_HANDLERS}
        own = text_keywords({k: v for k, v in self.defaults.items() if k not in of_all}, {**options, **others}, {})
        check_keywords("create_chat_completion", own, GENERATE_OPTIONS)
        if schema is not None:
            own["grammar"] = grammar_of_schema(schema)
        handler_arguments = {**OF_HANDLERS, **of_all, **{k: v for k, v in arguments.items() if k in OF_HANDLERS}}
        return chat_formats.handled(handler, self, {"messages": messages, **handler_arguments}, own)

    def _templated(self, messages: Any, options: dict[str, Any]) -> ChatCompletion | Iterator[ChatChunk]:
        stream, model = options.pop("stream", None), options.pop("model", None)
        logprobs, top_logprobs = options.pop("logprobs", None), options.pop("top_logprobs", None)
        request = ChatRequest(
            **{name: options.pop(name, None) for name in (*OF_TOOLS, "response_format")},
            reasoning=reasoning_of(options.pop("reasoning_format", None)),
            variables=self._variables(options),
        )
        options |= self.drawn_seed(options)
        keywords = text_keywords(text_defaults(self, options), options, DEFAULTS)
        prompt = self.chat_prompt(messages, request)
        keywords |= prompt.shape
        if logprobs:
            keywords["logprobs"] = top_logprobs or 0
        job = checked(self.session, prompt.tokens, keywords, "create_chat_completion")
        keep = self._recalled(job.tokens)
        stream_of = open_stream(self.session, job)
        text = CompletionAnswer(self.local_model, stream_of, "", len(prompt.tokens), model, keep)
        if named := prompt.choice.named:
            answer: ChatAnswer = NamedCallAnswer(text, named)
        else:
            answer = ChatAnswer(text, prompt.reading(text.spelled) if prompt.is_read else None)
        return answer.parts() if stream else answer.completion()

    def _variables(self, options: dict[str, Any]) -> dict[str, Any]:
        """Takes the template's variables out of the options. Raises BadValueError."""
        template = self.chat_template
        variables = template.check_variables(options.pop("chat_template_kwargs", None))
        return variables | {
            n: options.pop(n) for n in [*options] if n in template.variables and n not in GENERATE_OPTIONS
        }

    def chat_prompt(self, messages: object, request: ChatRequest, fetch: Fetch = data_url) -> ChatPrompt:
        """A conversation as this model's template writes it. fetch: files that the URLs of pictures name. Raises
        BadValueError."""
        target = self.engine.target
        pictures = Pictures(fetch)
        messages = pictures.taken_out_of(messages)

        def tokenize(text: str, bos: bool) -> list[int]:
            if pictures.marker in text:
                return seen_tokens(self.local_model, pictures.between(text), add_special=bos)
            return self.tokenize(text, add_bos=bos, special=True)

        return chat_prompt(
            self.chat_template,
            tokenize,
            messages,
            request,
            marked=target is not None and not target.can_rollback,
        )

    def create_chat_completion_openai_v1(self, *positional: Any, **options: Any) -> Any:
        """`create_chat_completion` that returns objects of the openai package.

        Raises:
            MissingPackageError: The openai package is not installed.
        """
        try:
            types = import_module("openai.types.chat")
        except ImportError:
            raise MissingPackageError(
                "create_chat_completion_openai_v1 needs the openai package; pip install openai"
            ) from None
        answer = self.create_chat_completion(*positional, **options)
        if isinstance(answer, dict):
            return types.ChatCompletion(**answer)
        return (types.ChatCompletionChunk(**part) for part in answer)
