"""The fields of requests: their names and types. What is not listed here passes, and null means absent.

Annotations are not postponed (PEP 563), and what pydantic makes of a class is made for its first request: a server's
start would take a tenth of a second longer.
"""

from functools import cache
from threading import Lock
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _whole(value: Any) -> Any:
    """100.0 as 100: some languages have no other numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


Whole = Annotated[int, BeforeValidator(_whole)]
Texts = str | list[str]
Ids = list[int]
Tree = dict[str, Any]
_building = Lock()  # pydantic builds a class wrongly if two threads use it first at once


@cache
def build(kind: type["Fields"]) -> None:
    """Call it before a class is used."""
    with _building:
        kind.model_rebuild()


class Fields(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)

    model: str | None = None


class TextFields(Fields):
    """What every request for a text may say (llama-server's names, OpenAI's, and duo's own)."""

    stream: bool | None = None
    stream_options: Tree | None = None
    sse_ping_interval: Whole | None = None
    return_progress: bool | None = None  # a stream tells how much of the prompt has been read
    timings_per_token: bool | None = None  # and who wrote each token
    n: Whole | None = None
    n_cmpl: Whole | None = None
    n_predict: Whole | None = None
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    t_max_predict_ms: float | None = None
    n_indent: Whole | None = None
    stop: Texts | None = None
    ignore_eos: bool | None = None
    seed: Whole | None = None
    samplers: Texts | None = None
    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    min_p: float | None = None
    min_keep: Whole | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: Whole | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: Whole | None = None
    dry_penalty_last_n: Whole | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: Whole | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    logit_bias: list[Any] | dict[str, Any] | None = None
    grammar: str | None = None
    json_schema: Any = None
    n_probs: Whole | None = None
    post_sampling_probs: bool | None = None
    return_tokens: bool | None = None
    response_fields: list[str] | None = None
    verbose: bool | None = None  # the answer has the prompt and the settings as well
    cache_prompt: bool | None = None
    n_keep: Whole | None = None
    n_discard: Whole | None = None
    id_slot: Whole | None = None
    lora: list[Any] | None = None
    reasoning_budget_tokens: Whole | None = None
    thinking_budget_tokens: Whole | None = None
    reasoning_budget_message: str | None = None
    mode: str | None = None  # plain, sync, async
    accept: str | None = None  # noise, rejection, typical, top-n
    posterior_threshold: float | None = None
    posterior_alpha: float | None = None
    accept_top: Whole | None = None
    draft: Tree | None = None  # n_max, n_min, p_min


class PromptFields(TextFields):
    prompt: str | list[Any] | Tree | None = None
    logprobs: bool | Whole | None = None  # n_probs has precedence


class CompletionFields(PromptFields):
    """/v1/completions"""

    logprobs: Whole | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: Whole | None = None


class InfillFields(PromptFields):
    """/infill"""

    prompt: str | list[Any] | None = None  # what stands between the prefix and the gap
    input_prefix: str | list[Any] | None = None
    input_suffix: str | list[Any] | None = None
    input_extra: list[Tree] | None = None


class ChatFields(TextFields):
    """/v1/chat/completions"""

    messages: list[Tree] | None = None
    tools: list[Tree] | None = None
    tool_choice: str | Tree | None = None
    functions: list[Tree] | None = None
    function_call: str | Tree | None = None
    parallel_tool_calls: bool | None = None  # false: one call at most
    response_format: Tree | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = None
    chat_template_kwargs: Tree | None = None
    reasoning_format: str | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | str | None = None  # vLLM's name: the answer that stands last goes on


class MessagesFields(TextFields):
    """/v1/messages"""

    messages: list[Tree] | None = None
    system: str | list[Tree] | None = None
    tools: list[Tree] | None = None
    tool_choice: Tree | None = None
    thinking: Tree | None = None
    output_config: Tree | None = None
    stop_sequences: list[str] | None = None


class ResponsesFields(TextFields):
    """/v1/responses"""

    input: str | list[Any] | None = None
    instructions: str | None = None
    tools: list[Tree] | None = None
    tool_choice: str | Tree | None = None
    parallel_tool_calls: bool | None = None
    text: Tree | None = None
    reasoning: Tree | None = None
    max_output_tokens: Whole | None = None
    previous_response_id: str | None = None


class EmbeddingFields(Fields):
    """/v1/embeddings"""

    input: str | list[Any] | Tree | None = None
    content: str | list[Any] | Tree | None = None  # llama-server's older name
    encoding_format: str | None = None
    dimensions: Whole | None = None
    embd_normalize: Whole | None = None


class RerankFields(Fields):
    """/v1/rerank"""

    query: str | None = None
    documents: list[str] | None = None
    texts: list[str] | None = None  # text-embeddings-inference's name
    top_n: Whole | None = None
    return_text: bool | None = None


class SlotFields(Fields):
    """/slots/ID"""

    filename: str | None = None


class TokenizeFields(Fields):
    content: str | list[Any] | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeFields(Fields):
    tokens: Ids | None = None
