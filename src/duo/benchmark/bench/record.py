"""One measured answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duo.benchmark.bench.arms import Arm


@dataclass(frozen=True)
class Served:
    """What a server sent, as a client sees it. Times in ms."""

    text: str
    n_tokens: int  # as the server counts them
    status: int = 200  # 429 or 503: refused
    tpot_ms: float | None = None  # (last - first) / (tokens - 1)
    whole_ms: float = 0.0  # from sending to the end
    good: bool | None = None  # within the limits of goodput; None: there are no limits

    @property
    def refused(self) -> bool:
        return self.status != 200


@dataclass(frozen=True)
class MeasuredAnswer:
    """The result of a writer for one turn."""

    tokens: Sequence[int]
    t_us: Sequence[int]  # when each token was committed, microseconds on one clock
    timings: Mapping[str, Any]  # duo.generation.result.Timings
    warning: str = ""  # why the text went on without the draft, if it did
    served: Served | None = None  # by a server; then there are no tokens and no t_us


@dataclass(frozen=True)
class AnswerRecord:
    """An answer with its question, arm, repetition and turn."""

    arm: Arm
    question_id: int | str
    category: str
    repetition: int  # from 0
    turn: int  # from 0
    tokens: tuple[int, ...]
    t_us: tuple[int, ...]
    timings: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""
    served: Served | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.tokens) if self.served is None else self.served.n_tokens

    @property
    def content(self) -> tuple[int, ...] | str:
        """What is compared with plain's: the tokens, or a server's text."""
        return self.tokens if self.served is None else self.served.text

    @property
    def seconds(self) -> float:
        """From the first token to the end, as llama-server counts: the pass over the prompt makes the first token."""
        return float(self.timings["predicted_ms"]) / 1e3

    @property
    def n_timed(self) -> int:
        """The number of tokens generated in those seconds."""
        return max(0, int(self.timings["predicted_n"]) - 1)

    @property
    def gaps_ms(self) -> list[float]:
        """Milliseconds between consecutive tokens; about 0 between tokens of one pass, which arrive together."""
        return [(b - a) / 1e3 for a, b in zip(self.t_us, self.t_us[1:], strict=False)]
