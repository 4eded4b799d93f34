"""What the server counts: texts, answers, refusals. `metric_families` says how Prometheus gets it.

Counters, not rates; durations in seconds, of one clock. Names of meaning and unit follow vLLM's and llama.cpp's.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from duo.generation.result import FinishReason
from duo.server.counts import SUMS, Counts, Times
from duo.server.errors import REASONS

if TYPE_CHECKING:
    from duo._core import Passes
    from duo.server.metric_families import Families
    from duo.server.text import ServedText

POSITIONS = 16  # the planner guesses no further ahead by itself
STANCES = {
    "ahead": "passes_ahead_n",
    "by_turn": "passes_by_turn_n",
    "rest": "passes_at_rest_n",
}


def load_client() -> None:
    """Imports Prometheus' client, which takes a tenth of a second the first time."""
    import duo.server.metric_families  # noqa: F401


class Metrics:
    """For one event loop."""

    def __init__(
        self,
        gauges: Callable[[], Mapping[str, float]],
        passes: Callable[[], Passes | None],
        *,
        of_llama_cpp: bool,
    ) -> None:
        """gauges: the values of now, by name. passes: the target's; None: it is elsewhere, or not loaded."""
        self.gauges, self.passes = gauges, passes
        self._of_llama_cpp = of_llama_cpp
        self._families: Families | None = None
        self.started = time.time()
        self.sums = dict.fromkeys(SUMS, 0.0)
        self.accepted_at = Tally(dict.fromkeys(range(POSITIONS), 0))
        self.n_most = 0  # tokens of the longest text, with its prompt
        self._ttft = Times("duo_time_to_first_token_seconds", "From the request to its first token")
        self._tpot = Times("duo_time_per_token_seconds", "Mean of a text's tokens but the first")
        self._queue = Times("duo_queue_seconds", "Wait for a slot")
        self._e2e = Times("duo_request_seconds", "From the request to the end of its text")
        self._texts = Counts("duo_texts", "Texts that have ended", "reason")
        self._passes = Counts("duo_target_passes", "Passes by stance, counted by text", "stance")
        self._drafted = Counts("duo_drafted_by_position", "Verifications with a guess there", "position")
        self._accepted = Counts("duo_accepted_by_position", "Guesses that were right", "position")
        self._refused = Counts("duo_requests_refused", "Requests that were not served", "reason")
        self._http = Counts("duo_http_responses", "Answers", "route", "status")
        self.times: Sequence[Times] = (self._ttft, self._tpot, self._queue, self._e2e)
        self.counts: Sequence[Counts] = (
            self._texts, self._passes, self._drafted, self._accepted, self._refused, self._http,
        )  # fmt: skip
        self.promised: dict[str, float] = {}  # tokens per second of the last text, by way
        # Counters begin at 0, so that Prometheus sees the first event as a rise, and divides series of one age.
        for reason in REASONS:
            self._refused.add(reason, n=0)
        for reason in get_args(FinishReason):
            self._texts.add(reason, n=0)
        for stance in STANCES:
            self._passes.add(stance, n=0)
        for i in map(str, range(POSITIONS)):
            self._drafted.add(i, n=0)
            self._accepted.add(i, n=0)

    @property
    def page(self) -> bytes:
        """All of it in Prometheus' text format 0.0.4. The first time it takes long (`load_client`)."""
        from prometheus_client.exposition import generate_latest

        from duo.server.metric_families import Families

        if self._families is None:
            self._families = Families(self, of_llama_cpp=self._of_llama_cpp)
        return generate_latest(self._families)

    def answered(self, route: str, status: int) -> None:
        self._http.add(route, str(status))

    def refused(self, reason: str) -> None:
        """reason: one of REASONS."""
        self._refused.add(reason)

    def has_read(self, n_texts: int, n_tokens: int, seconds: float) -> None:
        """Texts that became vectors or scores, of which each is read in one pass."""
        for name, n in (("passes", n_texts), ("prompt_tokens", n_tokens), ("prompt_seconds", seconds)):
            self.sums[name] += n

    def begun(self, text: ServedText) -> None:
        self._queue.observe(text.begun_at - text.asked_at)

    def ended(self, text: ServedText) -> None:
        r = text.result
        self._texts.add(r.finish_reason if r is not None else "cancelled")
        self._e2e.observe(time.monotonic() - text.asked_at)
        if r is None:
            return
        t: dict[str, Any] = dict(r.timings)
        self.n_most = max(self.n_most, text.n_prompt + len(r.tokens))
        for name, key in SUMS.items():
            self.sums[name] += (t.get(key) or 0) * (1e-3 if key.endswith("_ms") else 1)
        if text.first_at:
            self._ttft.observe(text.first_at - text.asked_at)
        if len(r.tokens) > 1:
            self._tpot.observe((text.last_at - text.first_at) / (len(r.tokens) - 1))
        for stance, key in STANCES.items():
            self._passes.add(stance, n=t.get(key, 0))
        self.promised |= t.get("promised_per_second", {})
        for i, n in enumerate(t.get("draft_n_by_position", ())):
            self._drafted.add(str(i), n=n)
        for i, n in enumerate(t.get("draft_n_accepted_by_position", ())):
            self._accepted.add(str(i), n=n)
            self.accepted_at[i] += n
