"""The shapes of OpenAI's answers, as llama_cpp gives them: dicts that a program or a server hands on."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

FinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class Usage(TypedDict):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


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


class CompletionChunk(TypedDict):
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
    reasoning_content: NotRequired[str]
    function_call: NotRequired[FunctionCall]
    tool_calls: NotRequired[list[ToolCall]]


class TopLogprob(TypedDict):
    token: str
    logprob: float  # nats
    bytes: None


class TokenLogprob(TypedDict):
    token: str
    bytes: None
    logprob: float  # nats
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[TokenLogprob]
    refusal: None


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatCompletion(TypedDict):
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


class ChatChunk(TypedDict):
    """A part of an answer."""

    id: str
    model: str
    created: int  # seconds since 1970
    object: str  # "chat.completion.chunk"
    choices: list[ChatChunkChoice]


class ResponseFormat(TypedDict, total=False):
    """What an answer must look like; one of text, json_object and json_schema."""

    type: str
    schema: Any
    json_schema: dict[str, Any]


def chat_logprobs(logprobs: Logprobs | None) -> ChatLogprobs | None:
    """Log-probabilities as chats have them; those of a prompt are not among them."""
    if logprobs is None:
        return None
    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
    return {
        "content": [
            {
                "token": token,
                "bytes": None,
                "logprob": logprob,
                "top_logprobs": [{"token": t, "logprob": p, "bytes": None} for t, p in top.items()],
            }
            for token, logprob, top in rows
            if logprob is not None and top is not None
        ],
        "refusal": None,
    }
