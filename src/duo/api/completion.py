"""Completions in llama_cpp's (OpenAI's) shape: code written for llama_cpp.Llama runs with duo.Duo."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from duo.api.llama_cpp_members import PLACES_OF_CHAT, PLACES_OF_COMPLETION, LlamaMembers, by_name
from duo.errors import DuoError
from duo.options.tables import GENERATE_OPTIONS
from duo.prompt.chat_template import ChatTemplate, template_of
from duo.text.result import TokenLogprobs

if TYPE_CHECKING:
    from duo import _core
    from duo.text.job import Prompt
    from duo.text.stream import Stream

Completion = dict[str, Any]

# llama_cpp's arguments that duo has no like of: given so, they change nothing.
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
    """Keywords of `Duo.stream`. Raises TypeError (unknown keyword) and DuoError (not in duo)."""
    options = {**defaults, **own}
    for name, value in given.items():
        foreign = name in NEUTRAL and (name not in OF_CHAT or defaults is CHAT_DEFAULTS)
        if foreign and value != NEUTRAL[name]:
            raise DuoError(f"{function} got {name}={value!r}, which duo has not; leave {name} out")
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


class _Answer:
    """One text on its way into dicts."""

    def __init__(self, model_here: _core.Model, stream: Stream, prompt: str, n_prompt: int, model: str | None) -> None:
        self._model, self._stream, self._prompt, self._n_prompt = model_here, stream, prompt, n_prompt
        self._offset = len(prompt)
        self._head = {
            "id": f"cmpl-{uuid.uuid4()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model_here.path if model is None else model,
        }

    def _piece(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", "ignore")

    def _logprobs(self, tokens: Sequence[TokenLogprobs]) -> Completion:
        found: Completion = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        for t in tokens:
            text = self._piece(t.token)
            found["tokens"].append(text)
            found["text_offset"].append(self._offset)
            found["token_logprobs"].append(t.logprob)
            found["top_logprobs"].append({self._piece(i): p for i, p in t.top} | {text: t.logprob})
            self._offset += len(text)
        return found

    def _is_text(self, token: int | None) -> bool:
        return token is not None and not self._model.is_end(token)

    def _choice(self, text: str, logprobs: Completion | None, finish_reason: str | None) -> Completion:
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def whole(self, *, echo: bool) -> Completion:
        with self._stream as s:
            for _ in s:
                pass
            r = s.result
        kept = [t for t in r.logprobs if self._is_text(t.token)]
        text = self._prompt * echo + r.text
        n = sum(map(self._is_text, r.tokens))
        usage = {"prompt_tokens": self._n_prompt, "completion_tokens": n, "total_tokens": self._n_prompt + n}
        logprobs = self._logprobs(kept) if s.with_logprobs else None
        return {**self._choice(text, logprobs, r.finish_reason), "usage": usage}

    def parts(self) -> Iterator[Completion]:
        with self._stream as s:
            for chunk in s:
                logprobs = None
                if chunk.logprobs is not None and self._is_text(chunk.token):
                    logprobs = self._logprobs([chunk.logprobs])
                if chunk.text or logprobs is not None:
                    yield self._choice(chunk.text, logprobs, None)
            yield self._choice("", None, s.finish_reason)


def _chat_logprobs(found: Completion | None) -> Completion | None:
    if found is None:
        return None
    rows = zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)
    return {
        "content": [
            {
                "token": token,
                "bytes": None,
                "logprob": logprob,
                "top_logprobs": [{"token": t, "logprob": p, "bytes": None} for t, p in top.items()],
            }
            for token, logprob, top in rows
        ],
        "refusal": None,
    }


def _as_chat(completion: Completion) -> Completion:
    (choice,) = completion["choices"]
    return {
        "id": "chat" + completion["id"],
        "object": "chat.completion",
        "created": completion["created"],
        "model": completion["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": choice["text"]},
                "logprobs": _chat_logprobs(choice["logprobs"]),
                "finish_reason": choice["finish_reason"],
            }
        ],
        "usage": completion["usage"],
    }


def _as_chat_parts(parts: Iterator[Completion]) -> Iterator[Completion]:
    def part(of: Completion, delta: Completion, logprobs: Completion | None, finish: str | None) -> Completion:
        return {
            "id": "chat" + of["id"],
            "model": of["model"],
            "created": of["created"],
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}],
        }

    first = True
    for p in parts:
        (choice,) = p["choices"]
        if first:
            yield part(p, {"role": "assistant"}, None, None)
        first = False
        delta = {"content": choice["text"]} if choice["finish_reason"] is None else {}
        yield part(p, delta, _chat_logprobs(choice["logprobs"]), choice["finish_reason"])


def schema_of(response_format: object) -> Any:
    """The schema that OpenAI's response_format asks for; None: any text. Raises DuoError."""
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
            raise DuoError("response_format has no schema; write {'type': 'json_schema', 'json_schema': {'schema': S}}")
        return schema
    raise DuoError(f"response_format is {response_format!r}; its type is text, json_object or json_schema")


class Completions(LlamaMembers):
    """llama_cpp.Llama's way to ask."""

    _chat_template: str | None  # jinja2, or a known name; None: the model's own
    _template: ChatTemplate | None = None

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template, or the one given to `Duo`. Raises DuoError if there is none."""
        if self._template is None:
            self._template = template_of(self.local_model, self._chat_template)
        return self._template

    def create_completion(self, prompt: Prompt, *places: Any, **options: Any) -> Completion | Iterator[Completion]:
        """llama_cpp.Llama.create_completion: a dict, or with `stream` an iterator of dicts.

        `options`: its arguments and those of `generate`; 16 tokens unless `max_tokens` says otherwise. `model`: the
        name that the dicts carry. Raises TypeError (unknown keyword) and DuoError.
        """
        options = by_name("create_completion", PLACES_OF_COMPLETION, places, options)
        stream, echo, model = (options.pop(name, None) for name in ("stream", "echo", "model"))
        wanted = _options(self.defaults, "create_completion", options, DEFAULTS)
        if echo and wanted.get("logprobs") is not None:
            raise DuoError("duo has no log-probabilities of the prompt; leave out echo or logprobs")
        bos = self.local_model.token_bos
        empty = isinstance(prompt, str) and not prompt and bos >= 0
        tokens = [bos] if empty else self.tokenize(prompt) if isinstance(prompt, str) else prompt
        begun = self.stream(tokens, **wanted)  # checks the prompt
        text = prompt if isinstance(prompt, str) else ""
        if not isinstance(prompt, str) and (echo or begun.with_logprobs):  # offsets count from the prompt's begin
            text = self.detokenize([int(t) for t in prompt])
        answer = _Answer(self.local_model, begun, text, len(tokens), model)
        return answer.parts() if stream else answer.whole(echo=bool(echo))

    def __call__(self, prompt: Prompt, *places: Any, **options: Any) -> Completion | Iterator[Completion]:
        """`create_completion`."""
        return self.create_completion(prompt, *places, **options)

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *places: Any,
        **options: Any,
    ) -> Completion | Iterator[Completion]:
        """llama_cpp.Llama.create_chat_completion: a dict, or with `stream` an iterator of dicts.

        The prompt is what the chat template makes of `messages` and `tools`; temperature 0.2 unless `temperature` says
        otherwise. Raises TypeError (unknown keyword) and DuoError.
        """
        options = by_name("create_chat_completion", PLACES_OF_CHAT, places, options)
        stream, model, tools, tool_choice = (options.pop(n, None) for n in ("stream", "model", "tools", "tool_choice"))
        response_format, logprobs, top_logprobs = (options.pop(n, None) for n in OF_ANSWER)
        wanted = _options(self.defaults, "create_chat_completion", options, CHAT_DEFAULTS)
        if tool_choice not in (None, "auto", "none"):
            raise DuoError(
                f"tool_choice is {tool_choice!r}; duo knows auto and none, and json_schema= shapes an answer"
            )
        if (schema := schema_of(response_format)) is not None:
            wanted |= {"grammar": None, "json_schema": schema}
        if logprobs:
            wanted["logprobs"] = top_logprobs or 0
        template = self.chat_template
        text = template.render(messages, tools=None if tool_choice == "none" else tools)
        tokens = self.tokenize(text, add_special=template.add_special)
        answer = _Answer(self.local_model, self.stream(tokens, **wanted), "", len(tokens), model)
        return _as_chat_parts(answer.parts()) if stream else _as_chat(answer.whole(echo=False))
