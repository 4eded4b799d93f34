"""Both sides are busy at once: read from the trace of a real run with a target that takes its time."""

import os
from typing import Any

import pytest

from duo import Duo
from duo.benchmark.trace import overlap, read_trace
from duo.generation.trace_writer import Event
from duo.gguf_tools.widen import widen
from duo.models.demo import demo_pair

N_TOKENS = 80


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Event]]:
    """Mode -> events of one text by a widened target (some milliseconds a pass) and the demo draft."""
    folder = tmp_path_factory.mktemp("overlap")
    target, draft = demo_pair()
    cores = sorted(os.sched_getaffinity(0))
    # With a core of its own each; on shared cores async may take turns.
    apart: dict[str, Any] = {"n_threads": 1, "n_threads_draft": 1}
    if len(cores) > 1:
        apart |= {"cpu_range": f"{cores[0]}-{cores[0]}", "cpu_range_draft": f"{cores[1]}-{cores[1]}"}
    widen(target, folder / "wide.gguf", size=60e6)
    found = {}
    how: dict[str, Any] = {"n_draft": 4, "temperature": 0, "max_tokens": N_TOKENS, "ignore_eos": True}
    for mode in ("sync", "async"):
        path = folder / f"{mode}.json"
        for _ in range(1 if mode == "sync" else 10):  # on a busy machine the draft may be late for a whole text
            with Duo(folder / "wide.gguf", draft, n_ctx=512, trace=path, **apart) as d:
                d.generate("Once upon a time", mode=mode, **how)
            found[mode] = read_trace(path)
            if any(e.hit for e in found[mode] if e.kind == "verify"):
                break
    return found


def inside(step: Event, passes: list[Event]) -> bool:
    return any(v.t0_us <= step.t0_us and step.t1_us <= v.t1_us for v in passes)


def steps_and_passes(events: list[Event]) -> tuple[list[Event], list[Event]]:
    passes = [e for e in events if e.kind == "verify"]
    # From the second pass on: during the first one both prompts are evaluated at once in every mode.
    steps = [e for e in events if e.kind == "draft" and e.t0_us > passes[0].t1_us]
    return steps, passes


def test_the_trace_tells_every_token(traces: dict[str, list[Event]]) -> None:
    for events in traces.values():
        passes = [e for e in events if e.kind == "verify"]
        assert sum(e.n_accepted + 1 for e in passes) == N_TOKENS
        assert all(e.n_accepted <= e.n_drafted < e.n_rows + 1 for e in passes)
        assert all(e.t0_us <= e.t1_us for e in events)


def test_async_drafts_while_the_target_verifies(traces: dict[str, list[Event]]) -> None:
    steps, passes = steps_and_passes(traces["async"])
    hidden = [s for s in steps if inside(s, passes)]
    assert hidden, f"none of {len(steps)} draft steps lies inside one of {len(passes)} passes"
    o = overlap(traces["async"])
    assert o.both_busy_us > 0
    assert any(e.hit for e in passes), "no token was at hand before it was committed"


def test_sync_takes_turns(traces: dict[str, list[Event]]) -> None:
    steps, passes = steps_and_passes(traces["sync"])
    hidden = [s for s in steps if inside(s, passes)]
    # A pass may begin without the draft only where a wait ran into its deadline.
    assert len(hidden) <= 0.25 * len(steps), f"{len(hidden)} of {len(steps)} draft steps lie inside a pass"
    assert overlap(traces["sync"]).hidden_share < overlap(traces["async"]).hidden_share
