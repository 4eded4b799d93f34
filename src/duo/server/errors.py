"""What a client did wrong, or what failed, in llama-server's shape and with its status."""

from __future__ import annotations

import re
from typing import Any

from duo.errors import BadValue, Busy, Cancelled, ContextFull, DuoError, PeerLost
from duo.options.tables import GENERATE_OPTIONS
from duo.support.wording import one_line

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
# Anthropic's names, where they are others.
OF_ANTHROPIC = {429: "rate_limit_error", 500: "api_error", 501: "api_error", 503: "overloaded_error"}


# Why a request was refused that could be right, as /metrics counts it.
REASONS = (
    "loading", "draining", "queue_full", "too_many_texts", "host", "origin", "key", "head_too_slow", "body_too_slow",
    "body_too_large", "context_exceeded",
)  # fmt: skip

# duo's keywords of a text that requests call otherwise.
FIELDS = {
    "n_draft": "speculative.n_max",
    "n_draft_min": "speculative.n_min",
    "draft_p_min": "speculative.p_min",
    "reasoning_budget": "reasoning_budget_tokens",
}
_FLAGS = (re.escape(x) for o in GENERATE_OPTIONS.values() for flag in o.flags for x in flag.split("/"))
_OF_COMMAND_LINES = re.compile(rf" \((?:{'|'.join(_FLAGS)})\)|; see duo run --help-all$")
_KEYWORD = re.compile(rf"\b(?:{'|'.join(FIELDS)})\b")


def of_a_request(sentence: str) -> str:
    """A sentence on a keyword of a text, as a client knows it: with the request's field, and without options."""
    return _KEYWORD.sub(lambda m: FIELDS[m[0]], _OF_COMMAND_LINES.sub("", sentence))


class ApiError(Exception):
    """An answer that is an error. reason: one of REASONS. more: further fields of its body."""

    def __init__(
        self, status: int, message: str, *, headers: dict[str, str] | None = None, reason: str = "", **more: Any
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status, self.message, self.headers, self.more = status, message, headers or {}, more

    @property
    def body(self) -> dict[str, Any]:
        """As llama-server writes it."""
        kind = self.more.get("type", TYPES.get(self.status, "server_error"))
        return {"error": {"code": self.status, "message": self.message, "type": kind, **self.more}}

    @property
    def anthropic_body(self) -> dict[str, Any]:
        """As Anthropic writes it."""
        kind = OF_ANTHROPIC.get(self.status, TYPES.get(self.status, "api_error"))
        return {"type": "error", "error": {"type": kind, "message": self.message}}


class Asleep(ApiError):  # noqa: N818 - the gate wakes them
    """The models are needed, and not loaded until somebody wakes them."""


def too_long(n_prompt: int, n_ctx: int) -> ApiError:
    """The prompt does not fit. Clients look for these words and fields."""
    return ApiError(
        400,
        f"the request has {n_prompt} tokens, which exceeds the available context size of {n_ctx} tokens; shorten it, "
        "or start the server with a larger -c",
        reason="context_exceeded",
        type="exceed_context_size_error",
        n_prompt_tokens=n_prompt,
        n_ctx=n_ctx,
    )


def as_api_error(e: BaseException) -> ApiError:
    """Any failure as an answer. What is no user's mistake shows no more than its sentence."""
    if isinstance(e, ApiError):
        return e
    if isinstance(e, ContextFull):
        return ApiError(
            400,
            f"{one_line(e)} (exceeds the available context size)",
            reason="context_exceeded",
            type="exceed_context_size_error",
        )
    if isinstance(e, BadValue | RecursionError):
        why = of_a_request(one_line(e)) if isinstance(e, BadValue) else "the request is nested too deeply"
        return ApiError(400, why)
    if isinstance(e, Busy | Cancelled | PeerLost):
        return ApiError(503, one_line(e))
    if isinstance(e, DuoError):
        return ApiError(500, one_line(e))
    if isinstance(e, MemoryError):
        return ApiError(503, "the server has not enough memory for this request; make it smaller")
    return ApiError(500, "the server failed; its log says why")
