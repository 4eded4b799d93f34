"""Keywords that llama_cpp.Llama has, with its defaults, and the sets of keywords that each call takes."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions


class LlamaOptions(TypedDict, total=False):
    """Keywords of llama_cpp.Llama that duo calls otherwise, or takes only where they change nothing."""

    model_path: Annotated[str | os.PathLike[str] | None, None]  # the target
    chat_template: Annotated[str | None, None]  # jinja2, or a name; None: the model's own
    chat_format: Annotated[str | None, None]  # one of llama_cpp's names
    use_mmap: Annotated[bool, True]
    use_mlock: Annotated[bool, False]
    last_n_tokens_size: Annotated[int, 64]  # repeat_last_n
    draft_model: Annotated[Any, None]  # LlamaPromptLookupDecoding: n-grams
    logits_all: Annotated[bool, False]
    no_perf: Annotated[bool, False]
    vocab_only: Annotated[bool, False]
    pooling_type: Annotated[int, -1]
    attention_type: Annotated[int, -1]
    embedding: Annotated[bool, False]
    swa_full: Annotated[bool | None, None]
    lora_base: Annotated[str | None, None]
    lora_scale: Annotated[float, 1.0]
    lora_path: Annotated[str | None, None]
    chat_handler: Annotated[Any, None]
    tokenizer: Annotated[Any, None]
    spm_infill: Annotated[bool, False]


class DuoOptions(EngineOptions, GenerateOptions, LlamaOptions, total=False):
    """Keywords of `Duo`: where the models live, defaults of all texts, and llama_cpp's names."""


class LoadOptions(DuoOptions, total=False):
    """`DuoOptions` and what `Duo` has beside them."""

    trace: Annotated[str | os.PathLike[str] | None, None]
    verbose: Annotated[bool, False]
    log_file: Annotated[str | os.PathLike[str] | None, None]
    progress: Annotated[Callable[[str, float], None] | None, None]


class OnceOptions(LoadOptions, total=False):
    """Keywords of a call that loads, writes and unloads."""


class SamplersOfLlama(TypedDict, total=False):
    """Arguments of both kinds of completion that no option of duo stands for."""

    model: Annotated[str | None, None]  # the name that the answer carries
    tfs_z: Annotated[float, 1.0]
    mirostat_mode: Annotated[int, 0]  # mirostat


class CompletionOptions(GenerateOptions, SamplersOfLlama, total=False):
    """Keywords of `create_completion`, but for `stream`."""

    suffix: Annotated[str | None, None]
    echo: Annotated[bool, False]


class ChatOptions(GenerateOptions, SamplersOfLlama, total=False):
    """Keywords of `create_chat_completion`, but for `stream`."""

    functions: Annotated[Sequence[Mapping[str, Any]] | None, None]
    function_call: Annotated[str | Mapping[str, Any] | None, None]
    tools: Annotated[Sequence[Mapping[str, Any]] | None, None]
    tool_choice: Annotated[str | Mapping[str, Any] | None, None]
    response_format: Annotated[Mapping[str, Any] | None, None]
    top_logprobs: Annotated[int | None, None]
    chat_template_kwargs: Annotated[Mapping[str, Any] | None, None]  # variables of the template
    reasoning_format: Annotated[str | None, None]  # none, auto or deepseek
