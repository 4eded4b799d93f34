"""Events that are kept in memory while somebody looks on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duo.generation import recent_events
from duo.generation.recent_events import RecentEvents
from duo.generation.trace_writer import Event
from duo.gguf_tools.switched_duo import SwitchedDuo


def event(i: int) -> Event:
    return Event("verify", "target", i, i + 1, 0, 1, 0, 0, False, 0)


@given(parts=st.lists(st.integers(0, 7), max_size=12), n=st.integers(1, 10), every=st.integers(1, 4))
def test_who_asks_often_enough_gets_each_event_once(parts: list[int], n: int, every: int) -> None:
    recent = RecentEvents(n)
    made: list[Event] = []
    after, seen = 0, []
    for i, k in enumerate(parts):
        fresh = [event(len(made) + j) for j in range(k)]
        made += fresh
        recent.add(fresh, {})
        if i % every == 0:
            missed = max(0, len(made) - after - n)
            n_all, found = recent.since(after)
            assert n_all == len(made) and found == made[after + missed :]
            after, seen = n_all, seen + found
    assert recent.since(after)[1] == made[max(after, len(made) - n) :]
    assert recent.since(len(made) + 1) == (len(made), made[max(0, len(made) - n) :]), "another server's number"
    assert len(set(seen)) == len(seen)


def test_events_stay_in_the_workers_rings_unless_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = RecentEvents()
    options: dict[str, Any] = {"max_tokens": 70, "temperature": 0, "ignore_eos": True}
    with SwitchedDuo(n_ctx=512, trace=recent, always=True) as d:
        d.generate("Once upon a time", **options)
        assert recent.since(0) == (0, [])
        recent.look()
        d.session.write_trace()
        n_all, found = recent.since(0)
        assert n_all == len(found) > 0 and {e.lane for e in found} == {"target", "draft"}
        d.generate("A frog", **options)  # now the text itself hands them over
        n_more, fresh = recent.since(n_all)
        assert n_more - n_all == len(fresh) > 0 and min(e.t1_us for e in fresh) > max(e.t0_us for e in found)
        written = sum(e.n_accepted + 1 for e in fresh if e.kind == "verify")
        assert written >= 69, "each pass brings a token and the guesses that were right"
        monkeypatch.setattr(recent_events, "LOOKS_FOR_S", -1.0)
        recent.look()
        d.generate("A king", **options)
        assert recent.since(0)[0] == n_more
    assert recent.since(n_all) == (n_more, fresh), "they can be read when the Duo is closed"
