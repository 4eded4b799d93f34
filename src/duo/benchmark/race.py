"""The same text written twice: by the target alone, then with its draft. Who guessed which token, and when it came."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from duo.support.other_load import QUIET_CORES, Moment, other_cores
from duo.support.same import n_same

if TYPE_CHECKING:
    from duo.generation.stream import Stream
    from duo.generation.timings import Timings


class TimedToken(NamedTuple):
    """A token of the text. Its text is empty while a character is incomplete."""

    at_s: float  # since the text was asked for
    text: str
    guessed: bool  # by the draft


@dataclass
class Lane:
    """One of the two texts, while it is written and afterwards."""

    name: str
    about: str
    state: Literal["waits", "loads", "writes", "done"] = "waits"
    loaded: float = 0.0  # share of the weights that are read
    kernels: str = ""  # names of the kernels that multiply the target's weights on the CPU
    began: float = 0.0  # on time.monotonic's clock
    pieces: list[TimedToken] = field(default_factory=list)
    tokens: tuple[int, ...] = ()
    finish_reason: str = ""
    timings: Timings | None = None
    other_cores: float | None = None  # that other programs used meanwhile

    def write(self, begin: Callable[[], Stream], look: Callable[[], None]) -> Stream:
        """Begins the text and records it. look: called after each token, and while none comes. Raises DuoError."""
        before = Moment.now()
        self.began = before.wall
        self.state = "writes"
        with begin() as s:
            while True:
                try:
                    chunk = s.poll()
                except StopIteration:
                    break
                if chunk is not None and (chunk.token is not None or chunk.text):
                    # When the target committed it, on the same clock: this thread may be late, because it also draws.
                    at = chunk.t_us / 1e6 - self.began if chunk.token is not None else self.seconds
                    self.pieces.append(TimedToken(max(at, self.seconds), chunk.text, chunk.from_draft))
                look()
            result = s.result
        self.tokens, self.finish_reason, self.timings = result.tokens, result.finish_reason, result.timings
        self.state = "done"
        self.other_cores = other_cores(before, Moment.now())
        return s

    @property
    def seconds(self) -> float:
        """From the request to the newest token."""
        return self.pieces[-1].at_s if self.pieces else 0.0

    @property
    def stopwatch(self) -> float:
        """Seconds since the request; it stops with the last token."""
        return time.monotonic() - self.began if self.state == "writes" else self.seconds

    @property
    def n_tokens(self) -> int:
        return len(self.tokens) if self.state == "done" else len(self.pieces)

    @property
    def n_guessed(self) -> int:
        return sum(p.guessed for p in self.pieces)

    @property
    def per_second(self) -> float:
        """Tokens per second, the time for the prompt included."""
        return self.n_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def text(self) -> str:
        return "".join(p.text for p in self.pieces)

    def n_at(self, seconds: float) -> int:
        """How many pieces there were so long after the request."""
        return sum(p.at_s <= seconds for p in self.pieces)


@dataclass(frozen=True)
class Outcome:
    """Both texts are complete."""

    alone: Lane
    pair: Lane

    @property
    def ratio(self) -> float:
        """Tokens per second of the pair, divided by those of the target alone."""
        return self.pair.per_second / self.alone.per_second

    @property
    def disturbed(self) -> bool:
        """Whether other programs took cores from one of the two."""
        return any((lane.other_cores or 0.0) > QUIET_CORES for lane in (self.alone, self.pair))

    @property
    def same_kernels(self) -> bool:
        """Whether both lanes computed the target with the same kernels. Others round differently."""
        return self.alone.kernels == self.pair.kernels

    @property
    def n_same(self) -> int:
        """Leading tokens that are the same."""
        return n_same(self.alone.tokens, self.pair.tokens)

    @property
    def same(self) -> bool:
        return self.alone.tokens == self.pair.tokens

    def as_json(self) -> dict[str, Any]:
        """All figures and both texts, token by token: [seconds, text, guessed by the draft]."""
        lanes = {
            key: {
                "name": lane.name,
                "kernels": lane.kernels,
                "seconds": lane.seconds,
                "tokens": lane.n_tokens,
                "tokens_per_s": lane.per_second,
                "guessed": lane.n_guessed,
                "finish_reason": lane.finish_reason,
                "other_cores": lane.other_cores,
                "timings": lane.timings,
                "pieces": [[round(p.at_s, 6), p.text, p.guessed] for p in lane.pieces],
            }
            for key, lane in (("alone", self.alone), ("pair", self.pair))
        }
        return {"ratio": self.ratio, "same_text": self.same, "same_tokens": self.n_same, **lanes}
