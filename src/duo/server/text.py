"""One text of a request: what it is to be, and what it has become."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duo.chat.reading import Part
from duo.generation.result import Chunk, Result, TokenLogprobs
from duo.server.recent_median import RecentMedian

if TYPE_CHECKING:
    from duo.compat.llama_cpp.answer import Reading
    from duo.generation.job import Job
    from duo.generation.stream_async import AsyncStream
    from duo.server.line_indent import LineIndent
    from duo.server.prompt_scores import PromptScores


@dataclass(frozen=True)
class TakenChunk:
    """A chunk, and the parts of the answer that it brings."""

    chunk: Chunk
    parts: list[Part]
    is_first: bool  # the first chunk of its text


@dataclass(eq=False)
class ServedText:
    """For one event loop. Times are of time.monotonic()."""

    index: int  # number among the texts of the request, from 0
    job: Job
    prompt: str  # as text
    reading: Reading | None = None  # None: all of it is the answer
    most_ms: float = 0.0  # milliseconds after the first token; 0: no limit
    indent: LineIndent | None = None
    scores: PromptScores | None = None  # None: the prompt's own tokens are not scored
    task_id: int = 0
    plain_pass_ms: RecentMedian = field(default_factory=RecentMedian)  # of all texts of the server

    asked_at: float = field(default_factory=time.monotonic)
    begun_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    stream: AsyncStream | None = None
    slot: int = -1
    chunks: list[Chunk] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)  # of the answer, as they came
    text: str = ""
    finish: str = ""  # why it has ended; empty: it has not
    result: Result | None = None  # when it has ended

    def arrived(self) -> None:
        """Tokens have come; they are taken a moment later."""
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at

    def take(self, chunk: Chunk) -> TakenChunk:
        """The next chunk becomes a part of the text. The last one has a finish_reason."""
        is_first = not self.chunks and not self.finish
        if chunk.token is not None:
            self.chunks.append(chunk)
        if self.stream is not None and self.slot < 0:
            self.slot = self.stream.stream.slot
        self.text += chunk.text
        if chunk.finish_reason is not None:
            self.finish = chunk.finish_reason
            self.end()
        if self.reading is None:
            parts = [Part(content=chunk.text)] if chunk.text else []
        else:
            parts = self.reading.add(chunk)
            if chunk.finish_reason is not None:
                parts += self.reading.finish()
        self.parts += parts
        return TakenChunk(chunk, parts, is_first)

    def end(self) -> None:
        """Nothing more comes of it. Safe to call twice."""
        is_first = self.result is None
        if self.stream is not None:
            self.result = self.stream.stream.result
        if is_first and self.result is not None and (ms := self.result.timings.get("pass_ms", {}).get("1")):
            self.plain_pass_ms.add(ms)

    @property
    def answer(self) -> Part:
        """The answer so far."""
        return Part(content=self.text) if self.reading is None else self.reading.answer

    @property
    def n_prompt(self) -> int:
        return len(self.job.tokens)

    @property
    def n_tokens(self) -> int:
        return len(self.chunks)

    @property
    def n_values(self) -> int:
        """Of an answer: its tokens so far, those of a scored prompt, and the alternatives to each of them."""
        n = self.n_tokens + (self.n_prompt if self.scores is not None else 0)
        return n * (1 + (self.job.options["logprobs"] or 0))

    @property
    def too_slow(self) -> bool:
        """Whether its time is over; as in llama-server it ends behind a line end."""
        if not self.most_ms or not self.first_at or "\n" not in self.text:
            return False
        return (time.monotonic() - self.first_at) * 1e3 > self.most_ms

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """Of the tokens so far, if they were asked for."""
        return [c.logprobs for c in self.chunks if c.logprobs is not None]

    @property
    def timings(self) -> dict[str, Any]:
        """Figures under llama-server's names, and duo's own (docs/server.md). While it is written: what is known."""
        figures: dict[str, Any] = {} if self.result is None else {**self.result.timings}
        if not figures:
            n, ms = self.n_tokens, (self.last_at - self.first_at) * 1e3
            figures = {
                "prompt_n": self.n_prompt,
                "predicted_n": n,
                "predicted_ms": ms,
                "predicted_per_second": (n - 1) * 1e3 / ms if n > 1 and ms > 0 else 0.0,
                "draft_n_accepted": sum(c.from_draft for c in self.chunks),
            }
            return {**figures, "queue_ms": self.queue_ms}
        out = {name: figures[name] for name in OF_LLAMA_SERVER if name in figures}
        if figures.get("draft_n"):
            out |= {name: figures[theirs] for name, theirs in OF_DRAFT.items() if theirs in figures}
        out |= {"ttft_ms": figures.get("ttft_ms", 0.0), "queue_ms": self.queue_ms}
        if (plain := self.plain_pass_ms.value) is not None:
            out["plain_pass_ms"] = plain
        return out

    @property
    def queue_ms(self) -> float:
        """Time until its turn."""
        return (self.begun_at - self.asked_at) * 1e3 if self.begun_at else 0.0


OF_LLAMA_SERVER = (
    "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
    "predicted_per_token_ms", "predicted_per_second",
)  # fmt: skip
OF_DRAFT = {
    "draft_n": "draft_n",
    "draft_n_accepted": "draft_n_accepted",
    "draft_rounds": "draft_rounds",
    "draft_hits": "draft_hit_n",
    "draft_wait_ms": "verify_wait_ms",
    "draft_acceptance_by_position": "draft_acceptance_by_position",
}
