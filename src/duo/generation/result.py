"""The output of a text: chunks while it runs, and a result at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from duo.generation.timings import Timings

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class TokenLogprobs:
    """The target's log-probabilities of one token, in nats.

    They are the model's own, before any sampler; with `post_sampling_probs` those that the samplers leave.
    """

    token: int
    """The token's id."""
    logprob: float
    """Its log-probability."""
    top: tuple[tuple[int, float], ...] = ()
    """The most probable tokens as (id, log-probability), the best one first."""


@dataclass(frozen=True)
class Chunk:
    """One token of a text. Its `text` is empty while a character or a possible stop string is incomplete."""

    text: str
    """Whole UTF-8 characters."""
    token: int | None = None
    """The token's id. None: the last chunk, which only says why the text ended."""
    from_draft: bool = False
    """Whether the draft guessed the token, and the target agreed."""
    finish_reason: FinishReason | None = None
    """Why the text ended: on the last chunk."""
    logprobs: TokenLogprobs | None = None
    """With `logprobs=N`: the target's log-probabilities."""
    t_us: int = 0
    """When the target committed the token: microseconds on a monotonic clock."""


@dataclass(frozen=True)
class Result:
    """A text. What `Duo.generate` returns, and what a `Stream` has at its end."""

    text: str
    """The generated text, without the prompt."""
    tokens: tuple[int, ...]
    """Its token ids."""
    from_draft: tuple[bool, ...]
    """For each token, whether the draft guessed it."""
    finish_reason: FinishReason | Literal[""]
    """Why the text ended. Empty: it has not ended."""
    timings: Timings = field(default_factory=lambda: Timings())
    """Figures of this text."""
    prompt_tokens: int = 0
    """Tokens of the prompt."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """With `logprobs=N`: the log-probabilities of each token."""
    seed: int = 0
    """The seed that was used, also if none was given."""
    warning: str = ""
    """The reason, if the text went on without the draft, the trace or the prompt cache."""
