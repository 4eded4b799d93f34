"""What the server counts: texts, answers, refusals. `metric_families` says how Prometheus gets it.

Counters, not rates; durations in seconds, of one clock. Names of meaning and unit follow vLLM's and llama.cpp's.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from duo.generation.result import FinishReason
from duo.server.errors import REASONS
from duo.server.metric_families import SUMS, Families

if TYPE_CHECKING:
    from duo._core import Passes
    from duo.server.text import ServedText

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
POSITIONS = 16  # the planner guesses no further ahead by itself
STANCES = {
    "ahead": "passes_ahead_n",
    "by_turn": "passes_by_turn_n",
    "rest": "passes_at_rest_n",
}


def _times(name: str, words: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, words, buckets=BUCKETS, registry=registry)


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
        self.registry = r = CollectorRegistry()
        self.started = time.time()
        self.sums = dict.fromkeys(SUMS, 0.0)
        self.accepted_at = Tally(dict.fromkeys(range(POSITIONS), 0))
        self.n_most = 0  # tokens of the longest text, with its prompt
        self._ttft = _times("duo_time_to_first_token_seconds", "From the request to its first token", r)
        self._tpot = _times("duo_time_per_token_seconds", "Mean of a text's tokens but the first", r)
        self._queue = _times("duo_queue_seconds", "Wait for a slot", r)
        self._e2e = _times("duo_request_seconds", "From the request to the end of its text", r)
        self._texts = Counter("duo_texts", "Texts that have ended", ["reason"], registry=r)
        self._passes = Counter("duo_target_passes", "Passes by stance, counted by text", ["stance"], registry=r)
        self._drafted = Counter("duo_drafted_by_position", "Verifications with a guess there", ["position"], registry=r)
        self._accepted = Counter("duo_accepted_by_position", "Guesses that were right", ["position"], registry=r)
        self._refused = Counter("duo_requests_refused", "Requests that were not served", ["reason"], registry=r)
        self._http = Counter("duo_http_responses", "Answers", ["route", "status"], registry=r)
        self._promised = Gauge(
            "duo_promised_tokens_per_second", "What the planner expected of the last text, by way", ["way"], registry=r
        )
        Gauge("duo_start_time_seconds", "When the server was started, since 1970", registry=r).set(self.started)
        # 0, so that the first one is seen as a rise, and what Prometheus divides has begun at the same time.
        for reason in REASONS:
            self._refused.labels(reason)
        for reason in get_args(FinishReason):
            self._texts.labels(reason)
        for stance in STANCES:
            self._passes.labels(stance)
        for i in map(str, range(POSITIONS)):
            self._drafted.labels(i)
            self._accepted.labels(i)
        r.register(Families(self, of_llama_cpp=of_llama_cpp))

    @property
    def page(self) -> bytes:
        """All of it in Prometheus' text format 0.0.4."""
        return generate_latest(self.registry)

    def answered(self, route: str, status: int) -> None:
        self._http.labels(route, str(status)).inc()

    def refused(self, reason: str) -> None:
        """reason: one of REASONS."""
        self._refused.labels(reason).inc()

    def has_read(self, n_texts: int, n_tokens: int, seconds: float) -> None:
        """Texts that became vectors or scores, of which each is read in one pass."""
        for name, n in (("passes", n_texts), ("prompt_tokens", n_tokens), ("prompt_seconds", seconds)):
            self.sums[name] += n

    def begun(self, text: ServedText) -> None:
        self._queue.observe(text.begun_at - text.asked_at)

    def ended(self, text: ServedText) -> None:
        r = text.result
        self._texts.labels(r.finish_reason if r is not None else "cancelled").inc()
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
            self._passes.labels(stance).inc(t.get(key, 0))
        for way, rate in t.get("promised_per_second", {}).items():
            self._promised.labels(way).set(rate)
        for i, n in enumerate(t.get("draft_n_by_position", ())):
            self._drafted.labels(str(i)).inc(n)
        for i, n in enumerate(t.get("draft_n_accepted_by_position", ())):
            self._accepted.labels(str(i)).inc(n)
            self.accepted_at[i] += n
