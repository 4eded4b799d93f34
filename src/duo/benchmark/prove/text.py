"""A text as a writer wrote it, and the candidates that a reference was chosen from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TokenCandidate(NamedTuple):
    """A token that could have come at a place."""

    piece: str
    logprob: float  # nats
    token: int | None = None  # None: a server tells only the text of tokens
    ends: bool = False  # it would have ended the text


@dataclass(frozen=True)
class Step:
    """One token of a reference."""

    chosen: TokenCandidate
    top: tuple[TokenCandidate, ...]  # the most probable ones


@dataclass(frozen=True)
class ProvedText:
    """tokens: None where only the text is known. text: None where only the tokens are."""

    text: str | None
    tokens: tuple[int, ...] | None = None
    steps: tuple[Step, ...] = ()  # of a reference, if log-probabilities are known
    is_cut: bool = False  # it reached the limit of tokens, so JSON may have no end
    arguments: str | None = None  # JSON that has to parse: a call's arguments, or the whole answer
    warning: str = ""
    n_drafted: int = 0  # guesses that the target verified
    n_accepted: int = 0
