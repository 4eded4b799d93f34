"""Figures that are read when Prometheus asks: sums over texts, the engine's own, and llama.cpp's names for them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric, Sample
from prometheus_client.registry import Collector

from duo.server.counts import BUCKETS, Counts, Times

if TYPE_CHECKING:
    from duo._core import Passes

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
    "requests_waiting": "Texts that wait for a slot",
    "places": "Texts that can be written at once",
    "cache_usage_ratio": "Share of the context that running texts hold",
    "cache_tokens": "Tokens in the target's cache, those of ended texts included",
    "texts_parked": "Running texts that wait because the cache is full",
    "texts_kept": "Ended texts that --cache-ram keeps",
    "texts_kept_bytes": "Memory that they take",
    "texts_open": "Texts that the pair has begun and not yet ended",
    "draft_cache_tokens": "Tokens in the draft's cache",
    "ready": "1: requests are served",
}
# Of `Passes.stance_us`.
STANCES = ("ahead", "by_turn", "rest", "prompt")
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
# llama-server's names (llama.cpp, tools/server/server-task.cpp), with which its dashboards and autoscalers work.
OF_LLAMA_CPP = {
    "prompt_tokens_total": "prompt_tokens",
    "prompt_tokens_cached_total": "prompt_tokens_cached",
    "prompt_seconds_total": "prompt_seconds",
    "tokens_predicted_total": "generated_tokens",
    "tokens_predicted_seconds_total": "generated_seconds",
    "spec_decode_num_drafts_total": "draft_rounds",
    "spec_decode_num_draft_tokens_total": "drafted_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
}


class FigureSource(Protocol):
    """Where the figures are (Metrics)."""

    gauges: Callable[[], Mapping[str, float]]
    passes: Callable[[], Passes | None]
    sums: dict[str, float]  # by the names of SUMS
    accepted_at: Tally[int]  # by position
    n_most: int  # tokens of the longest text
    times: Sequence[Times]
    counts: Sequence[Counts]
    promised: dict[str, float]  # tokens per second of the last text, by way
    started: float  # seconds since 1970


class Families(Collector):
    """All figures, as Prometheus' client writes them."""

    def __init__(self, metrics: FigureSource, *, of_llama_cpp: bool) -> None:
        self._metrics, self._of_llama_cpp = metrics, of_llama_cpp
        self._before = dict.fromkeys(metrics.sums, 0.0)  # sums at the last request of Prometheus, or at the start
        self._n_passes: int | None = None  # as last known: while the models are freed, the target does not tell

    def collect(self) -> Iterator[Metric]:
        m = self._metrics
        created = _tells_created()
        yield from (_of_times(t, created=created) for t in m.times)
        yield from (_of_counts(c, created=created) for c in m.counts)
        promised = GaugeMetricFamily(
            "duo_promised_tokens_per_second", "What the planner expected of the last text, by way", labels=["way"]
        )
        for way, rate in m.promised.items():
            promised.add_metric([way], rate)
        yield promised
        yield GaugeMetricFamily("duo_start_time_seconds", "When the server was started, since 1970", m.started)
        for name, value in m.sums.items():
            yield CounterMetricFamily(f"duo_{name}", WORDS[name], value)
        gauges, passes = m.gauges(), m.passes()
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"duo_{name}", WORDS[name], value)
        if passes is not None:
            yield from _of_passes(passes)
        if self._of_llama_cpp:
            yield from self._theirs(gauges, passes)

    def _theirs(self, gauges: Mapping[str, float], passes: Passes | None) -> Iterator[Metric]:
        m = self._metrics
        for name, ours in OF_LLAMA_CPP.items():
            yield CounterMetricFamily("llamacpp:" + name.removesuffix("_total"), WORDS[ours], m.sums[ours])
        if passes is not None:
            self._n_passes = sum(passes["by_width"].values())
        n_passes = m.sums["passes"] if self._n_passes is None else self._n_passes
        yield CounterMetricFamily("llamacpp:n_decode", "Passes of the target", n_passes)
        by_position = CounterMetricFamily(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos", WORDS["accepted_tokens"], labels=["position"]
        )
        for i, n in sorted(m.accepted_at.items()):
            by_position.add_metric([str(i)], n)
        yield by_position
        new = {name: value - self._before[name] for name, value in m.sums.items()}
        self._before = dict(m.sums)
        theirs = {
            # llama-server makes a counter of it, but Prometheus' client would rename a counter.
            "n_tokens_max": m.n_most,
            "requests_processing": gauges["requests_running"],
            "requests_deferred": gauges["requests_waiting"],
            "prompt_tokens_seconds": _rate(new["prompt_tokens"], new["prompt_seconds"]),
            "predicted_tokens_seconds": _rate(new["generated_tokens"], new["generated_seconds"]),
            "n_busy_slots_per_decode": float(n_passes > 0) if passes is None else _rate(passes["n_texts"], n_passes),
        }
        for name, value in theirs.items():
            yield GaugeMetricFamily("llamacpp:" + name, "As llama-server has it", value)


def _tells_created() -> bool:
    """Whether series say when they began, as PROMETHEUS_DISABLE_CREATED_SERIES or disable_created_metrics() wants it:
    what Prometheus' client does with a metric of its own."""
    return any(s.name.endswith("_created") for m in Counter("duo", "", registry=None).collect() for s in m.samples)


def _of_counts(c: Counts, *, created: bool) -> Metric:
    family = CounterMetricFamily(c.name, c.words, labels=c.labels)
    for of, n in c.values.items():
        family.add_metric(of, n, c.since[of] if created else None)
    return family


def _of_times(t: Times, *, created: bool) -> Metric:
    bounds = [str(b) for b in BUCKETS]
    buckets = [(le, float(n)) for le, n in zip([*bounds, "+Inf"], accumulate(t.counts), strict=True)]
    family = HistogramMetricFamily(t.name, t.words, buckets=buckets, sum_value=t.sum)
    if created:
        family.samples.append(Sample(f"{t.name}_created", {}, t.since))
    return family


def _of_passes(passes: Passes) -> Iterator[Metric]:
    """Each pass of the target counts once, however many texts it had."""
    counts = [sum(n for width, n in passes["by_width"].items() if low < width <= high)
              for low, high in zip((0, *WIDTHS), WIDTHS, strict=False)]  # fmt: skip
    buckets = [(str(float(le)), float(n)) for le, n in zip(WIDTHS, accumulate(counts), strict=True)]
    buckets.append(("+Inf", float(sum(passes["by_width"].values()))))
    yield HistogramMetricFamily(
        "duo_target_pass_rows", "Passes of the target by their rows", buckets=buckets, sum_value=passes["n_rows"]
    )
    yield CounterMetricFamily("duo_target_pass_texts", "Texts in all passes of the target", passes["n_texts"])
    times = CounterMetricFamily(
        "duo_stance_seconds", "Time with texts by what the pair did; prompt: it only read prompts", labels=["stance"]
    )
    for stance, us in zip(STANCES, passes["stance_us"], strict=True):
        times.add_metric([stance], us * 1e-6)
    yield times


def _rate(n: float, seconds: float) -> float:
    return n / seconds if seconds else 0.0
