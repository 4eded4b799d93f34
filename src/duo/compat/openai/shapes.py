"""The fields of OpenAI's answers, as llama_cpp gives them: dicts that a program hands on. The server adds some."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict


class Fingerprint(TypedDict, total=False):
    """The field that names a server."""

    system_fingerprint: str


class PromptDetails(TypedDict):
    cached_tokens: int


class Usage(TypedDict):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: NotRequired[PromptDetails]


class Logprobs(TypedDict):
    """Log-probabilities (nats) of a text's tokens; the four lists have one entry for each token. None: nothing stands
    before the token."""

    tokens: list[str]
    text_offset: list[int]  # characters from the beginning of the prompt
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(TypedDict):
    text: str
    index: int
    logprobs: Logprobs | None
    finish_reason: str | None  # None: the text goes on


class CompletionChunk(Fingerprint):
    """A part of a text."""

    id: str
    object: str  # "text_completion"
    created: int  # seconds since 1970
    model: str
    choices: list[CompletionChoice]


class Completion(CompletionChunk):
    """A whole text."""

    usage: Usage


class FunctionCall(TypedDict):
    name: str
    arguments: str  # JSON


class ToolCall(TypedDict):
    index: NotRequired[int]  # in parts of an answer only
    id: str
    type: Literal["function"]
    function: FunctionCall


class FunctionCallPart(TypedDict):
    name: NotRequired[str]
    arguments: str


class ToolCallPart(TypedDict):
    """What a part of an answer brings of a call. The first part of a call has its id, its type and its name."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionCallPart


class ChatMessage(TypedDict):
    """An answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: NotRequired[None]  # OpenAI's schema requires it, and clients want the next one, too
    annotations: NotRequired[list[Any]]
    reasoning_content: NotRequired[str]
    function_call: NotRequired[FunctionCall]
    tool_calls: NotRequired[list[ToolCall]]


class TopLogprob(TypedDict):
    token: str
    logprob: float  # nats
    bytes: None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[TokenLogprob]
    refusal: None


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatCompletion(Fingerprint):
    """A whole answer."""

    id: str
    object: str  # "chat.completion"
    created: int  # seconds since 1970
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(TypedDict, total=False):
    """What a part of an answer brings."""

    role: Literal["assistant"] | None
    content: str | None
    reasoning_content: str
    function_call: FunctionCall | None
    tool_calls: list[ToolCall] | list[ToolCallPart] | None


class ChatChunkChoice(TypedDict):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatChunk(Fingerprint):
    """A part of an answer."""

    id: str
    model: str
    created: int  # seconds since 1970
    object: str  # "chat.completion.chunk"
    choices: list[ChatChunkChoice]
