"""Completions in llama_cpp's (OpenAI's) shape: code written for llama_cpp.Llama runs with duo.Duo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast, overload

from typing_extensions import Unpack

from duo.compat.llama_cpp.answer import CompletionAnswer
from duo.compat.llama_cpp.infill import infill
from duo.compat.llama_cpp.members import COMPLETION_ARGUMENTS, LlamaMembers, merged_arguments
from duo.compat.openai.shapes import Completion, CompletionChunk
from duo.generation.begin import checked, open_stream
from duo.generation.errand import score
from duo.generation.job import Prompt, prompt_with_images
from duo.generation.texts import text_defaults
from duo.options.llama_cpp import CompletionOptions
from duo.options.signature import keywords
from duo.options.tables import GENERATE_OPTIONS

WITHOUT_EFFECT = ("tfs_z",)  # llama.cpp has no such sampler any more
OTHER_NAMES = {"mirostat_mode": "mirostat"}
DEFAULTS: dict[str, Any] = {"max_tokens": 16}


def text_keywords(own: Mapping[str, Any], arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a text, not checked, of those that llama_cpp's function got. own: what `Duo` was given for all."""
    options = {**defaults, **own}
    for argument, value in arguments.items():
        name = OTHER_NAMES.get(argument, argument)
        if name == "max_tokens":
            unlimited = value is None or (isinstance(value, int) and value <= 0)
            options[name] = -1 if unlimited else value
        elif name not in WITHOUT_EFFECT and (value is not None or name not in GENERATE_OPTIONS):
            options[name] = value
    return options


def stream_keyword(stream: bool | None) -> dict[str, bool]:
    """`stream` as a keyword beside the positional ones."""
    return {"stream": stream} if stream else {}


class Completions(LlamaMembers):
    """llama_cpp.Llama's way to ask for a text."""

    @overload
    def create_completion(
        self,
        prompt: Prompt,
        *positional: Any,
        stream: Literal[False] | None = False,
        **options: Unpack[CompletionOptions],
    ) -> Completion: ...

    @overload
    def create_completion(
        self, prompt: Prompt, *positional: Any, stream: Literal[True], **options: Unpack[CompletionOptions]
    ) -> Iterator[CompletionChunk]: ...

    @overload
    def create_completion(
        self, prompt: Prompt, *positional: Any, stream: bool | None, **options: Unpack[CompletionOptions]
    ) -> Completion | Iterator[CompletionChunk]: ...

    @keywords(CompletionOptions, COMPLETION_ARGUMENTS, **DEFAULTS)
    def create_completion(
        self, prompt: Prompt, *positional: Any, stream: bool | None = False, **options: Any
    ) -> Completion | Iterator[CompletionChunk]:
        """Writes a text, as llama_cpp.Llama.create_completion does. Calling the `Duo` itself does the same.

        Positional arguments have llama_cpp's order. Errors are those of `stream`.

        Args:
            prompt: Text, or token ids.
            stream: Return an iterator of dicts; otherwise one dict.
            **options: Keywords of a completion, and keywords of a text.
        """
        options = merged_arguments(
            "create_completion", COMPLETION_ARGUMENTS, positional, {**options, **stream_keyword(stream)}
        )
        if isinstance(prompt, Iterator):
            prompt = list(prompt)  # it is read more than once
        stream, echo, model, suffix = (options.pop(name, None) for name in ("stream", "echo", "model", "suffix"))
        options |= self.drawn_seed(options)
        keywords = text_keywords(text_defaults(self, options), options, DEFAULTS)
        if images := keywords.pop("images", None):
            tokens: Sequence[int] = prompt_with_images(self.local_model, prompt, images)
        elif suffix is None:
            tokens = self._prompt_tokens(prompt)
        else:
            tokens = infill(self.local_model, prompt, suffix, suffix_first=self.spm_infill)
        job = checked(self.session, tokens, keywords, "create_completion")
        scored = None
        if (n_top := job.options["logprobs"]) is not None and echo and not stream:
            scored = job.tokens[0], score(self.session, job.tokens, n_top, job.options["lora_scales"] or ())
        keep = self._recalled(job.tokens)
        text_stream = open_stream(self.session, job)
        text = prompt if isinstance(prompt, str) else ""
        if not isinstance(prompt, str) and (echo or n_top is not None):  # offsets count from the prompt's begin
            text = self.decode([int(t) for t in prompt])
        answer = CompletionAnswer(self.local_model, text_stream, text, len(job.tokens), model, keep)
        return answer.parts() if stream else answer.completion(echo=bool(echo), scored=scored)

    def _prompt_tokens(self, prompt: Prompt) -> Sequence[int]:
        bos = self.local_model.token_bos
        if not isinstance(prompt, str):
            return cast("Sequence[int]", prompt)
        return self.tokenize(prompt, special=True) if prompt or bos < 0 else [bos]

    __call__ = create_completion
