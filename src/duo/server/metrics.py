"""Figures for Prometheus: duo's own names, and llama.cpp's if they are wanted.

Counters, not rates; durations in seconds, of one clock. Names of meaning and unit follow vLLM's and llama.cpp's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

if TYPE_CHECKING:
    from duo.server.text import Text

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
STANCES = {"ahead": "passes_ahead_n", "by_turn": "passes_by_turn_n", "rest": "passes_at_rest_n"}


def _times(name: str, words: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, words, buckets=BUCKETS, registry=registry)


class Metrics:
    """For one event loop."""

    def __init__(self, gauges: Callable[[], Mapping[str, float]], *, of_llama_cpp: bool) -> None:
        """gauges: the values of now, by name."""
        self.gauges = gauges
        self.registry = CollectorRegistry()
        self._sums = dict.fromkeys(SUMS, 0.0)
        self._accepted_at: dict[int, int] = {}
        self._n_most = 0
        r = self.registry
        self._ttft = _times("duo_time_to_first_token_seconds", "From the request to its first token", r)
        self._tpot = _times("duo_time_per_token_seconds", "Mean of a text's tokens but the first", r)
        self._queue = _times("duo_queue_seconds", "Wait for a place", r)
        self._e2e = _times("duo_request_seconds", "From the request to the end of its text", r)
        self._texts = Counter("duo_texts", "Texts that have ended", ["reason"], registry=r)
        self._passes = Counter("duo_target_passes", "Passes of the target by stance", ["stance"], registry=r)
        self._accepted = Counter("duo_accepted_by_position", "Guesses that were right", ["position"], registry=r)
        self._refused = Counter("duo_requests_refused", "Requests that were not served", ["reason"], registry=r)
        self._http = Counter("duo_http_responses", "Answers", ["route", "status"], registry=r)
        started = Gauge("duo_start_time_seconds", "When the server was started, since 1970", registry=r)
        started.set_to_current_time()
        self.registry.register(_Sums(self, of_llama_cpp=of_llama_cpp))

    @property
    def page(self) -> bytes:
        """All of it in Prometheus' text format 0.0.4."""
        return generate_latest(self.registry)

    def answered(self, route: str, status: int) -> None:
        self._http.labels(route, str(status)).inc()

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def begun(self, text: Text) -> None:
        self._queue.observe(text.begun_at - text.asked_at)

    def ended(self, text: Text) -> None:
        r = text.result
        self._texts.labels(r.finish_reason if r is not None else "cancelled").inc()
        self._e2e.observe(time.monotonic() - text.asked_at)
        if r is None:
            return
        t: dict[str, Any] = dict(r.timings)
        self._n_most = max(self._n_most, text.n_prompt + len(r.tokens))
        for name, key in SUMS.items():
            self._sums[name] += (t.get(key) or 0) * (1e-3 if key.endswith("_ms") else 1)
        if text.first_at:
            self._ttft.observe(text.first_at - text.asked_at)
        if len(r.tokens) > 1:
            self._tpot.observe((text.last_at - text.first_at) / (len(r.tokens) - 1))
        for stance, key in STANCES.items():
            self._passes.labels(stance).inc(t.get(key, 0))
        n_rounds = t.get("draft_rounds", 0)
        for i, share in enumerate(t.get("draft_acceptance_by_position", [])):
            n = round(share * n_rounds)
            self._accepted.labels(str(i)).inc(n)
            self._accepted_at[i] = self._accepted_at.get(i, 0) + n

    # ---- for the collector below

    @property
    def sums(self) -> dict[str, float]:
        return self._sums

    @property
    def accepted_at(self) -> dict[int, int]:
        return self._accepted_at

    @property
    def n_most(self) -> int:
        return self._n_most


# Counters, and the figures of a text that they add up.
SUMS = {
    "prompt_tokens": "prompt_n",
    "prompt_tokens_cached": "cache_n",
    "prompt_seconds": "prompt_ms",
    "generated_tokens": "predicted_n",
    "generated_seconds": "predicted_ms",
    "passes": "target_passes_n",
    "draft_rounds": "draft_rounds",
    "drafted_tokens": "draft_n",
    "accepted_tokens": "draft_n_accepted",
    "draft_hits": "draft_hit_n",
    "draft_wait_seconds": "verify_wait_ms",
    "draft_steps": "draft_steps_n",
}
WORDS = {
    "prompt_tokens": "Prompt tokens that were evaluated",
    "prompt_tokens_cached": "Prompt tokens that were in the cache",
    "prompt_seconds": "Time of prompts",
    "generated_tokens": "Tokens that were generated",
    "generated_seconds": "Time of generation, summed over texts",
    "passes": "Passes of the target, counted by text",
    "draft_rounds": "Verifications",
    "drafted_tokens": "Guesses that were verified",
    "accepted_tokens": "Guesses that were right",
    "draft_hits": "Passes whose last token the draft had prepared",
    "draft_wait_seconds": "Time that the target waited for guesses",
    "draft_steps": "Steps of the draft",
    "requests_running": "Texts that are being written",
    "requests_waiting": "Texts that wait for a place",
    "places": "Texts that can be written at once",
    "cache_usage_ratio": "Share of the context that running texts hold",
    "ready": "1: requests are served",
    "cache_tokens": "Tokens in the target's cache, those of ended texts included",
    "draft_cache_tokens": "Tokens in the draft's cache",
    "kept_texts": "Ended texts whose cache was moved to RAM (--cache-ram)",
    "kept_bytes": "Bytes of these",
    "parked_texts": "Texts that wait because the context is full",
    "open_texts": "Texts that the pair has begun and not yet ended",
}
# llama-server's names (tools/server/server-context.cpp), with which its dashboards and autoscalers work.
OF_LLAMA_CPP = {
    "prompt_tokens_total": "prompt_tokens",
    "prompt_tokens_cached_total": "prompt_tokens_cached",
    "prompt_seconds_total": "prompt_seconds",
    "tokens_predicted_total": "generated_tokens",
    "tokens_predicted_seconds_total": "generated_seconds",
    "n_decode_total": "passes",
    "spec_decode_num_drafts_total": "draft_rounds",
    "spec_decode_num_draft_tokens_total": "drafted_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
}


class _Sums:
    """What is read when Prometheus asks."""

    def __init__(self, metrics: Metrics, *, of_llama_cpp: bool) -> None:
        self._metrics, self._of_llama_cpp = metrics, of_llama_cpp

    def collect(self) -> Iterator[Metric]:
        m = self._metrics
        for name, value in m.sums.items():
            yield CounterMetricFamily(f"duo_{name}", WORDS[name], value)
        for name, value in m.gauges().items():
            yield GaugeMetricFamily(f"duo_{name}", WORDS[name], value)
        if self._of_llama_cpp:
            yield from self._theirs()

    def _theirs(self) -> Iterator[Metric]:
        m = self._metrics
        sums, gauges = m.sums, m.gauges()
        for name, ours in OF_LLAMA_CPP.items():
            yield CounterMetricFamily("llamacpp:" + name.removesuffix("_total"), WORDS[ours], sums[ours])
        by_position = CounterMetricFamily(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos", WORDS["accepted_tokens"], labels=["position"]
        )
        for i, n in m.accepted_at.items():
            by_position.add_metric([str(i)], n)
        yield by_position
        yield CounterMetricFamily("llamacpp:n_tokens_max", "Most tokens of a text", m.n_most)
        theirs = {
            "requests_processing": gauges["requests_running"],
            "requests_deferred": gauges["requests_waiting"],
            "prompt_tokens_seconds": _rate(sums["prompt_tokens"], sums["prompt_seconds"]),
            "predicted_tokens_seconds": _rate(sums["generated_tokens"], sums["generated_seconds"]),
            "n_busy_slots_per_decode": gauges["requests_running"],
        }
        for name, value in theirs.items():
            yield GaugeMetricFamily("llamacpp:" + name, "As llama-server has it", value)


def _rate(n: float, seconds: float) -> float:
    return n / seconds if seconds else 0.0
