"""Counters and histograms of a server. Prometheus' client makes its text of them (`metric_families`), and is imported
only then: it takes a tenth of a second, and most servers are never asked."""

from __future__ import annotations

import time
from bisect import bisect_left

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
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


class Counts:
    """A counter for each combination of labels. name: without `_total`. words: its explanation."""

    def __init__(self, name: str, words: str, *labels: str) -> None:
        self.name, self.words, self.labels = name, words, labels
        self.values: dict[tuple[str, ...], float] = {}
        self.since: dict[tuple[str, ...], float] = {}  # seconds since 1970

    def add(self, *of: str, n: float = 1.0) -> None:
        """of: a value for each label. n: 0 shows the counter before anything is counted."""
        if of not in self.values:
            self.values[of], self.since[of] = 0.0, time.time()
        self.values[of] += n


class Times:
    """A histogram of durations in seconds."""

    def __init__(self, name: str, words: str) -> None:
        self.name, self.words = name, words
        self.counts = [0] * (len(BUCKETS) + 1)  # one for each bucket, and one for longer durations
        self.sum = 0.0
        self.since = time.time()  # seconds since 1970

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds
