"""/metrics: what Prometheus gets, under duo's names and llama.cpp's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import GREEDY, PROMPT, Server, raw, request_for, served

from duo.server.metrics import Metrics
from duo.server.service import Service
from duo.server.settings import ServerSettings

Figures = dict[tuple[str, str], float]

# tools/server/server-task.cpp in llama.cpp
OF_LLAMA_SERVER = [
    "prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total", "tokens_predicted_total",
    "tokens_predicted_seconds_total", "n_decode_total", "n_tokens_max", "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total", "prompt_tokens_seconds",
    "predicted_tokens_seconds", "requests_processing", "requests_deferred", "n_busy_slots_per_decode",
]  # fmt: skip


@pytest.fixture(scope="module")
def compatible() -> Iterator[Server]:
    """Two places, one that waits, and llama.cpp's names."""
    asked = {"metrics_compat": "llamacpp", "queue": 1, "header_timeout": 0.3, "body_timeout": 0.3, "max_body": 0.01,
             "api_key": "k"}  # fmt: skip
    with served(asked, n_parallel=2, always=True) as s:
        yield s


def figures(server: Server) -> Figures:
    """By name and labels."""
    page = server.get("/metrics", headers={"X-Api-Key": "k"})
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert float(page.headers["process-start-time-unix"]) > 1e9
    found: Figures = {}
    for family in text_string_to_metric_families(page.text):
        for s in family.samples:
            key = (s.name, ",".join(f"{k}={v}" for k, v in sorted(s.labels.items())))
            assert key not in found, key
            found[key] = s.value
    return found


def of(found: Figures, name: str) -> dict[str, float]:
    """The values of a name, by their labels."""
    return {labels: value for (n, labels), value in found.items() if n == name}


def write(server: Server, n: int = 3, **more: Any) -> None:
    for i in range(n):
        body = {"prompt": f"{PROMPT} {i}", **GREEDY, "ignore_eos": True, **more}
        answer = server.post("/completion", body, headers={"X-Api-Key": "k"})
        assert answer.status_code == 200, answer.text
    server.wait_until_idle()


def test_passes_and_guesses(compatible: Server) -> None:
    before = figures(compatible)
    write(compatible, mode="sync", draft={"n_max": 4})
    after = figures(compatible)

    def more(name: str) -> dict[str, float]:
        return {label: x - of(before, name).get(label, 0) for label, x in of(after, name).items()}

    assert more("duo_generated_tokens_total") == {"": 48}
    # Each pass once, by its rows: all that was evaluated went through one.
    widths = more("duo_target_pass_rows_bucket")
    n_passes, n_rows = more("duo_target_pass_rows_count")[""], more("duo_target_pass_rows_sum")[""]
    assert widths["le=+Inf"] == n_passes == more("duo_passes_total")[""] == more("llamacpp:n_decode_total")[""]
    assert list(widths.values()) == sorted(widths.values()) and widths["le=64.0"] == n_passes
    assert widths["le=1.0"] < n_passes  # guesses were verified
    assert n_rows >= more("duo_prompt_tokens_total")[""] + more("duo_drafted_tokens_total")[""]
    assert more("duo_target_pass_texts_total")[""] == n_passes  # one text at a time
    # By stance, in passes and in seconds.
    assert sum(more("duo_target_passes_total").values()) == n_passes
    times = more("duo_stance_seconds_total")
    assert set(times) == {f"stance={s}" for s in ("ahead", "by_turn", "rest", "prompt")}
    assert all(t >= 0 for t in times.values()) and sum(times.values()) > 0
    # By position.
    drafted, accepted = more("duo_drafted_by_position_total"), more("duo_accepted_by_position_total")
    assert drafted["position=0"] >= accepted["position=0"] > 0 and all(accepted[p] <= drafted[p] for p in accepted)
    assert drafted["position=0"] <= more("duo_draft_rounds_total")[""]
    assert sum(accepted.values()) == more("duo_accepted_tokens_total")[""]
    assert more("llamacpp:spec_decode_num_accepted_tokens_per_pos_total") == accepted


def test_prompts_are_counted_by_their_passes(compatible: Server) -> None:
    before = figures(compatible)
    write(compatible, 1, prompt="word " * 900, n_predict=2, max_tokens=2, mode="plain")
    after = figures(compatible)
    wide = [of(f, "duo_target_pass_rows_bucket") for f in (before, after)]
    assert wide[1]["le=+Inf"] - wide[1]["le=64.0"] > wide[0]["le=+Inf"] - wide[0]["le=64.0"]
    assert (
        of(after, "duo_stance_seconds_total")["stance=prompt"] > of(before, "duo_stance_seconds_total")["stance=prompt"]
    )


def test_the_cache_of_an_idle_server(compatible: Server) -> None:
    write(compatible, 1)
    idle = figures(compatible)
    assert of(idle, "duo_cache_usage_ratio") == {"": 0} and of(idle, "duo_texts_parked") == {"": 0}
    assert of(idle, "duo_cache_tokens")[""] == sum(compatible.duo.engine.usage["target"]["cells"]) > 16


def test_refusals_by_reason(compatible: Server) -> None:
    def refused() -> dict[str, float]:
        found = of(figures(compatible), "duo_requests_refused_total")
        return {label.removeprefix("reason="): n for label, n in found.items()}

    before = refused()
    key = {"X-Api-Key": "k"}
    head = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: k\r\nContent-Length: 9\r\n"
    assert compatible.post("/completion", {}).status_code == 401
    assert compatible.post("/completion", {"prompt": "a" * 20_000}, headers=key).status_code == 413
    assert compatible.post("/completion", {"prompt": list(range(3000))}, headers=key).status_code == 413
    assert compatible.post("/completion", {"prompt": [5] * 2100}, headers=key).status_code == 400
    assert compatible.post("/completion", {"prompt": ["a"] * 9}, headers=key).status_code == 400
    long = {"prompt": "a", "n_predict": 1500, "ignore_eos": True, "stream": True}
    asked = request_for("/completion", long).replace(b"\r\n\r\n", b"\r\nX-Api-Key: k\r\n\r\n", 1)
    texts = [raw(compatible, asked) for _ in range(3)]
    while compatible.service.admission.n_inside < 3:
        pass
    assert compatible.post("/completion", {"prompt": "a"}, headers=key).status_code == 429
    for s in (*texts, raw(compatible, head), raw(compatible, head + b"\r\n{")):
        if s not in texts:
            assert s.recv(100).startswith(b"HTTP/1.1 408")
        s.close()
    rise = {reason: n - before[reason] for reason, n in refused().items()}
    assert rise == {"loading": 0, "draining": 0, "queue_full": 1, "too_many_texts": 1, "host": 0, "origin": 0, "key": 1,
                    "head_too_slow": 1, "body_too_slow": 1, "body_too_large": 2, "context_exceeded": 1}  # fmt: skip
    compatible.wait_until_idle()


def test_llama_servers_names(compatible: Server) -> None:
    figures(compatible)
    write(compatible, 2)
    write(compatible, 1, prompt=[5] * 600)
    found = figures(compatible)
    for name in OF_LLAMA_SERVER:
        assert list(of(found, f"llamacpp:{name}")) == [""], name
    assert of(found, "llamacpp:predicted_tokens_seconds")[""] > 0
    assert 1 <= of(found, "llamacpp:n_busy_slots_per_decode")[""] <= 2
    assert of(found, "llamacpp:n_tokens_max")[""] > 500
    again = figures(compatible)  # rates are since the last look
    assert of(again, "llamacpp:predicted_tokens_seconds")[""] == 0
    assert of(again, "llamacpp:tokens_predicted_total") == of(again, "duo_generated_tokens_total")


def test_series_say_when_they_began_if_prometheus_client_does() -> None:
    metrics = Service(ServerSettings.of({}, "demo")).metrics
    try:
        for n, choose in (
            (0, prometheus_client.disable_created_metrics),
            (10, prometheus_client.enable_created_metrics),
        ):
            choose()
            assert metrics.page.count(b"_created") >= n and (n or b"_created" not in metrics.page)
    finally:
        prometheus_client.enable_created_metrics()


def test_llama_servers_count_of_passes_does_not_fall_while_the_models_are_freed() -> None:
    """By text more passes are counted than there were."""
    passes = Mock(return_value={"by_width": {1: 3, 4: 2}, "n_texts": 9, "n_rows": 11, "stance_us": [0, 0, 0, 0]})
    gauges = {"requests_running": 0.0, "requests_waiting": 0.0}
    metrics = Metrics(lambda: gauges, passes, of_llama_cpp=True)
    metrics.sums["passes"] = 9.0
    assert b"\nllamacpp:n_decode_total 5.0\n" in metrics.page
    passes.return_value = None
    assert b"\nllamacpp:n_decode_total 5.0\n" in metrics.page
