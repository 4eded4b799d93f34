"""Where a text leaves its reference, and how near the other token was."""

from __future__ import annotations

from dataclasses import dataclass

from duo.benchmark.prove.plan import Item
from duo.benchmark.prove.text import ProvedText, Step
from duo.support.same import n_same

# Nats between two tokens: other roundings may choose the other one.
NEAR_TIE = 0.4


@dataclass(frozen=True)
class Difference:
    """The first difference of a text. at: the token, from 0; None: the server does not tell its tokens. at_char: the
    character, from 0; None: unknown. expected, actual: what stands there; empty: the end of the text. gap: of the
    log-probabilities of both tokens under the reference, in nats; None: unknown, also if a server does not tell which
    token it was. is_least: the gap is at least that, because the token was none of the candidates."""

    item: Item
    at: int | None
    at_char: int | None
    expected: str
    actual: str
    gap: float | None = None
    is_least: bool = False

    @property
    def is_near_tie(self) -> bool | None:
        """None: unknown."""
        return None if self.gap is None else not self.is_least and self.gap < NEAR_TIE

    @property
    def badness(self) -> tuple[float, int]:
        """A sorting key. A text is worse if its other token is less probable, and, of equals, if it differs earlier."""
        return float("inf") if self.gap is None else self.gap, -(self.at if self.at is not None else self.at_char or 0)


def difference(item: Item, right: ProvedText, written: ProvedText) -> Difference | None:
    """None: the text is the same; one that was cancelled, as far as it goes."""
    is_complete = item.cancel_after is None
    if right.tokens is not None and written.tokens is not None:
        at = n_same(right.tokens, written.tokens)
        if at < len(written.tokens) or (is_complete and at < len(right.tokens)):
            return _of_tokens(item, right, written, at)
    if right.text is None or written.text is None:
        return None
    at_char = n_same(right.text, written.text)
    if at_char < len(written.text) or (is_complete and at_char < len(right.text)):
        return _of_characters(item, right, written, at_char)
    return None


def _of_tokens(item: Item, right: ProvedText, written: ProvedText, at: int) -> Difference:
    assert written.tokens is not None and right.tokens is not None
    expected = right.steps[at].chosen.piece if at < len(right.steps) else ""
    other = written.tokens[at] if at < len(written.tokens) else None
    gap, is_least, piece = None, False, "" if other is None else f"token {other}"
    if at < len(right.steps):
        step = right.steps[at]
        near = [c for c in step.top if (c.ends if other is None else c.token == other)]
        piece = near[0].piece if near else piece
        gap, is_least = _gap(item, step, max((c.logprob for c in near), default=None))
    return Difference(item, at, None, expected or _token(right.tokens, at), piece, gap, is_least)


def _token(tokens: tuple[int, ...], at: int) -> str:
    return f"token {tokens[at]}" if at < len(tokens) else ""


def _is_token(piece: str, rest: str) -> bool:
    """Whether a text that begins with a candidate's piece has it as its token: a longer token ("123") may begin with it
    ("1"). No vocabulary joins a word with a space behind it."""
    after = rest[len(piece) :][:1]
    return not after or (after.isspace() and not piece[-1].isspace())


def _gap(item: Item, step: Step, logprob: float | None) -> tuple[float | None, bool]:
    """A sampled token need not be the most probable one, so its text has no gap."""
    if item.kind == "sampled":
        return None, False
    if logprob is not None:
        return max(0.0, step.chosen.logprob - logprob), False
    if not step.top:
        return None, False
    return max(0.0, step.chosen.logprob - min(c.logprob for c in step.top)), True


def _of_characters(item: Item, right: ProvedText, written: ProvedText, at_char: int) -> Difference:
    assert right.text is not None and written.text is not None
    begin, expected, other = 0, right.text[at_char : at_char + 12], written.text[at_char : at_char + 12]
    if not right.text.startswith("".join(s.chosen.piece for s in right.steps)):
        return Difference(item, None, at_char, expected, other)  # pieces with half characters
    for at, step in enumerate(right.steps):
        end = begin + len(step.chosen.piece)
        if at_char < end:
            rest = written.text[begin:]
            near = [c for c in step.top if c is not step.chosen and c.piece and rest.startswith(c.piece)]
            near = [c for c in near if c.piece != step.chosen.piece]
            best = next((c for c in near if _is_token(c.piece, rest)), None) if len(near) == 1 else None
            # A server that tells no tokens tells no end of the text, either.
            is_known = bool(rest) and (best is not None or not near)
            gap, is_least = _gap(item, step, None if best is None else best.logprob) if is_known else (None, False)
            piece = other if best is None else best.piece
            return Difference(item, at, at_char, step.chosen.piece, piece, gap, is_least)
        begin = end
    return Difference(item, len(right.steps) or None, at_char, expected, other)
