"""A host that is killed, frozen or cut off: texts go on, and are the texts that nothing has disturbed."""

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import EXACT
from hosts import PROMPT, HostProcess, until_it_helps, write
from proxies import proxy
from sizes import mostly_daily, size
from storms import FAULTS, Storm, held, left

from duo import Duo, Result
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

pytest.importorskip("grpc")

from duo.remote.client import exchange

# Or as many as DUO_TEST_FAULTS says: 200 take some minutes.
N_FAULTS = int(os.environ.get("DUO_TEST_FAULTS", size(2, 200)))
SEED = int(os.environ.get("DUO_TEST_FAULTS_SEED", "1"))
LATE_US = 20_000  # each pass is late by up to this, so that a text lasts

TEXTS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 240, "ignore_eos": True},
    {"temperature": 0.8, "seed": 3, "max_tokens": 240, "ignore_eos": True},
]


@pytest.fixture(scope="module")
def expected() -> list[Result]:
    with Duo(demo_pair()[0], n_ctx=512, **EXACT) as d:
        return [d.generate(PROMPT, **o) for o in TEXTS]


@pytest.fixture
def nothing_left(draft_host: HostProcess, verify_host: HostProcess) -> Iterator[None]:
    """After the test: no thread, socket or process more than before."""
    with_draft_at(draft_host.address).close()  # hosts, and OpenMP's team of this thread, which stays, are there then
    with_target_at(verify_host.address).close()
    before = held()
    yield
    assert left(before) == {}


def with_draft_at(address: str, **options: Any) -> Duo:
    return SwitchedDuo(draft_host=address, **{"n_ctx": 512, "always": True, "delay": (LATE_US, 7)} | EXACT | options)


def with_target_at(address: str, **options: Any) -> Duo:
    return SwitchedDuo(verify_host=address, **{"always": True, "delay": (LATE_US, 7)} | options)


def same(r: Result, e: Result) -> bool:
    return (r.text, r.tokens, r.finish_reason) == (e.text, e.tokens, e.finish_reason)


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.usefixtures("nothing_left")
def test_no_fault_of_a_draft_host_changes_or_stops_a_text(draft_host: HostProcess, expected: list[Result]) -> None:
    n_lost = n_texts = 0
    with (
        proxy(draft_host.address) as way,
        with_draft_at(way.address) as d,
        Storm(draft_host, way, N_FAULTS, SEED, lambda: d.network.host_model) as storm,  # type: ignore[union-attr]
    ):
        while not storm.over:
            i = n_texts % len(TEXTS)
            r = d.generate(PROMPT, **TEXTS[i])
            assert same(r, expected[i])
            n_lost += r.timings["network_lost_n"]
            n_texts += 1
        until_it_helps(d)
    print(f"{dict(storm.done)}: {n_texts} texts, {n_lost} times without the host")
    assert sum(storm.done.values()) == N_FAULTS
    assert n_lost >= max(1, N_FAULTS // 10)


@pytest.mark.parametrize("how", mostly_daily(["silent", "frozen"], ["silent"]))
def test_a_text_never_waits_for_its_draft_host(
    how: str, draft_host: HostProcess, expected: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host says nothing more, and the client never gives it up: a text that waited would not end."""
    monkeypatch.setattr(exchange, "LOST_S", 1e6)
    with proxy(draft_host.address) as way, with_draft_at(way.address, delay=(0, 1)) as d:
        until_it_helps(d)
        stop = (lambda: way.set("silent")) if how == "silent" else (lambda: draft_host.send(signal.SIGSTOP))
        try:
            for text, e in zip(TEXTS, expected, strict=True):
                r = write(d, text, {10: stop})
                assert same(r, e)
                assert r.timings["network_lost_n"] == 0
        finally:
            draft_host.send(signal.SIGCONT)  # other tests have the same host


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.usefixtures("nothing_left")
def test_no_fault_of_a_verify_host_costs_or_repeats_a_token(verify_host: HostProcess, expected: list[Result]) -> None:
    n_lost = n_texts = 0
    n_faults = max(len(FAULTS), N_FAULTS // 4)
    with (
        proxy(verify_host.address) as way,
        with_target_at(way.address, host_patience=60) as d,
        Storm(verify_host, way, n_faults, SEED + 1, lambda: d.network.host_model) as storm,  # type: ignore[union-attr]
    ):
        while not storm.over:
            i = n_texts % len(TEXTS)
            r = d.generate(PROMPT, **TEXTS[i])
            assert same(r, expected[i])
            n_lost += r.timings["network_lost_n"]
            n_texts += 1
        assert same(until_it_helps(d, **TEXTS[0]), expected[0])
    print(f"{dict(storm.done)}: {n_texts} texts, {n_lost} times without the host")
    assert sum(storm.done.values()) == n_faults
    assert n_lost >= max(1, n_faults // 10)


@pytest.mark.parametrize("role", ["draft", "verify"])
@pytest.mark.usefixtures("nothing_left")
def test_a_duo_is_closed_at_once_while_its_host_is_silent(role: str, request: pytest.FixtureRequest) -> None:
    h: HostProcess = request.getfixturevalue(f"{role}_host")
    make = with_draft_at if role == "draft" else with_target_at
    for _ in range(3):
        with proxy(h.address) as way:
            d = make(way.address)
            s = d.stream(PROMPT, ignore_eos=True, max_tokens=-1, temperature=0)
            for _, _chunk in zip(range(random.Random(SEED).randrange(40)), s, strict=False):
                pass
            way.set("silent")
            s.close()
            d.close()
            assert s.finish_reason == "cancelled"
    with make(h.address) as d:  # its seat is free
        assert d.generate(PROMPT, temperature=0, max_tokens=20).finish_reason == "length"


def test_the_counted_bytes_are_those_on_the_wire(draft_host: HostProcess, expected: list[Result]) -> None:
    with proxy(draft_host.address) as way, with_draft_at(way.address, delay=(0, 1)) as d:
        until_it_helps(d)
        before = way.n_bytes
        r = d.generate(PROMPT, **TEXTS[0])
        there = way.n_bytes - before
        counted = r.timings["network_sent_bytes"] + r.timings["network_received_bytes"]
    # HTTP/2's own: heads of streams, windows, pings of the transport.
    assert counted <= there <= 1.25 * counted + 4096
