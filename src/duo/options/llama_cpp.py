"""Keywords that llama_cpp.Llama has, with its defaults, and the sets of keywords that each call takes."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.option import opt


class LlamaOptions(TypedDict, total=False):
    """Keywords of llama_cpp.Llama that duo calls otherwise, or takes only where they change nothing."""

    model_path: Annotated[str | os.PathLike[str] | None, opt(None, "The target's file: `model`.")]
    chat_template: Annotated[
        str | None, opt(None, "Chat template: jinja2, or a name (chatml, llama3, ...). Default: the model's own.")
    ]
    chat_format: Annotated[str | None, opt(None, "A chat format by llama_cpp's name, in place of a template.")]
    use_mmap: Annotated[bool, opt(True, 'False: `load_mode="none"`.')]
    use_mlock: Annotated[bool, opt(False, 'True: `load_mode="mlock"`.')]
    last_n_tokens_size: Annotated[int, opt(64, "`repeat_last_n`.")]
    draft_model: Annotated[Any, opt(None, "A LlamaPromptLookupDecoding: n-grams of its sizes guess.")]
    logits_all: Annotated[bool, opt(False, "Has no effect: duo gives log-probabilities without it.")]
    no_perf: Annotated[bool, opt(False, "Has no effect.")]
    vocab_only: Annotated[bool, opt(False, "Load only the vocabulary: for `tokenize` and `decode`, not for texts.")]
    pooling_type: Annotated[
        int | str,
        opt(-1, "With `embedding`: none, mean, cls, last, rank, or llama.cpp's number. Default: the model's own."),
    ]
    attention_type: Annotated[int, opt(-1, "Only -1: the model's file says how its tokens attend.")]
    embedding: Annotated[bool, opt(False, "Load the model for embeddings, not for texts.")]
    swa_full: Annotated[
        bool | None, opt(None, "Not False: taking back a wrong guess needs the whole cache of a sliding window.")
    ]
    lora_base: Annotated[str | None, opt(None, "Only None: the adapter is added to the weights as they are.")]
    lora_scale: Annotated[float, opt(1.0, "Factor of `lora_path`.")]
    lora_path: Annotated[str | None, opt(None, "One LoRA adapter; for several see `lora_scaled`.")]
    chat_handler: Annotated[
        Any, opt(None, "A function of llama_cpp that makes prompt and answer. One for images gives its projector.")
    ]
    tokenizer: Annotated[Any, opt(None, "Only None: target and draft must read the same tokens.")]
    spm_infill: Annotated[bool, opt(False, "With `suffix` in a completion: the suffix comes before the prefix.")]


class DuoOptions(EngineOptions, GenerateOptions, LlamaOptions, total=False):
    """Keywords of `Duo`: where the models live, defaults of all texts, and llama_cpp's names."""


class LoadOptions(DuoOptions, total=False):
    """`DuoOptions` and what `Duo` has beside them."""

    trace: Annotated[str | os.PathLike[str] | None, opt(None, "File for the Chrome trace of both workers.")]
    verbose: Annotated[bool, opt(False, "Print llama.cpp's log to standard error.")]
    log_file: Annotated[str | os.PathLike[str] | None, opt(None, "File for llama.cpp's log.")]
    progress: Annotated[
        Callable[[str, float], None] | None,
        opt(None, "Is called with a path and a share (0 to 1) while a model loads."),
    ]


class OnceOptions(LoadOptions, total=False):
    """Keywords of a call that loads, writes and unloads."""


class SamplersOfLlama(TypedDict, total=False):
    """Arguments of both kinds of completion that no option of duo stands for."""

    model: Annotated[str | None, opt(None, "Name of the model in the answer. Default: the target's path.")]
    tfs_z: Annotated[float, opt(1.0, "Has no effect: llama.cpp has no such sampler any more.")]
    mirostat_mode: Annotated[int, opt(0, "`mirostat`.")]


class CompletionOptions(GenerateOptions, SamplersOfLlama, total=False):
    """Keywords of `create_completion`, but for `stream`."""

    suffix: Annotated[
        str | None, opt(None, "Text that follows the answer, for models that were trained to fill in the middle.")
    ]
    echo: Annotated[
        bool, opt(False, "The prompt stands before the text. With `logprobs`, its tokens have log-probabilities, too.")
    ]


class ChatOptions(GenerateOptions, SamplersOfLlama, total=False):
    """Keywords of `create_chat_completion`, but for `stream`."""

    functions: Annotated[Sequence[Mapping[str, Any]] | None, opt(None, "OpenAI's older form of `tools`.")]
    function_call: Annotated[str | Mapping[str, Any] | None, opt(None, "OpenAI's older form of `tool_choice`.")]
    tools: Annotated[
        Sequence[Mapping[str, Any]] | None,
        opt(None, "Tools that the answer may call, in OpenAI's form. Its calls become `tool_calls`."),
    ]
    tool_choice: Annotated[
        str | Mapping[str, Any] | None,
        opt(None, "none, auto, required, or a tool in OpenAI's form, which the answer then calls. Default: auto."),
    ]
    response_format: Annotated[
        Mapping[str, Any] | None, opt(None, "Type text, json_object or json_schema, as in OpenAI's API.")
    ]
    top_logprobs: Annotated[int | None, opt(None, "With `logprobs=True`: number of alternatives for each token.")]
    chat_template_kwargs: Annotated[
        Mapping[str, Any] | None, opt(None, "Variables of the template, such as `enable_thinking`.")
    ]
    reasoning_format: Annotated[
        str | None, opt(None, "auto or deepseek: thoughts become `reasoning_content`; none: they stay in the content.")
    ]
