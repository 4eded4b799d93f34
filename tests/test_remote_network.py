"""Hosts at the other end of a cable, in a network namespace of their own: slow, lossy, pulled out."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import HANG_S
from far_machine import FarMachine, far_machine, why_not
from hosts import KERNELS, PROMPT, HostProcess, until_it_helps, write
from sizes import mostly_daily
from storms import held, left
from test_remote_faults import TEXTS, expected, same, with_draft_at, with_target_at
from test_remote_parallel import check, client, write_all
from test_remote_parallel import expected as expected_of_four

from duo import Result

pytest.importorskip("grpc")

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

__all__ = ["expected", "expected_of_four"]  # fixtures

SLOW = {"delay_ms": 25.0, "loss": 0.01, "rate_kbit": 1000.0}
N_SLOW = 100


class FarHost(HostProcess):
    """A host at the other end of a cable."""

    def __init__(self, c: FarMachine, role: str, *args: str | Path) -> None:
        self._cable = c
        super().__init__(role, "--insecure", *args, listen=f"{c.there}:0")

    def launch(self, *args: str | Path) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        command = self._cable.command(sys.executable, "-m", "duo", *args)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)


@pytest.fixture(scope="module")
def far() -> Iterator[FarMachine]:
    before = held()
    del before["threads"]  # gRPC keeps one from its first use on
    with far_machine() as c:
        yield c
    assert left(before) == {}
    r = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert c.namespace not in [line.split()[0] for line in r.stdout.splitlines()]


@contextmanager
def far_host(c: FarMachine, role: str, *args: str) -> Iterator[FarHost]:
    h = FarHost(c, role, *args)
    try:
        yield h
    finally:
        h.stop()


@pytest.fixture(scope="module")
def draft_host(far: FarMachine) -> Iterator[FarHost]:
    with far_host(far, "draft", "-td", "1") as h:
        yield h


@pytest.fixture(scope="module")
def verify_host(far: FarMachine) -> Iterator[FarHost]:
    with far_host(far, "verify", "-t", "1", "-c", "512", *KERNELS) as h:
        yield h


def beginning_of(e: Result, r: Result) -> bool:
    return len(r.tokens) == N_SLOW and r.tokens == e.tokens[:N_SLOW] and e.text.startswith(r.text)


@pytest.mark.parametrize("i", mostly_daily([0, 1], [1]))
def test_a_slow_and_lossy_link_changes_no_text(
    i: int, far: FarMachine, draft_host: FarHost, expected: list[Result]
) -> None:
    far.set(**SLOW)
    with with_draft_at(draft_host.address) as d:
        until_it_helps(d)
        r = d.generate(PROMPT, **{**TEXTS[i], "max_tokens": N_SLOW})
    assert beginning_of(expected[i], r)
    assert r.timings["network_round_trip_ms"] > 49


def test_a_verify_host_behind_a_slow_and_lossy_link(
    far: FarMachine, verify_host: FarHost, expected: list[Result]
) -> None:
    far.set(**SLOW)
    with with_target_at(verify_host.address) as d:
        r = d.generate(PROMPT, **{**TEXTS[1], "max_tokens": N_SLOW})
    assert beginning_of(expected[1], r)
    assert r.timings["network_round_trip_ms"] > 49


@pytest.mark.parametrize("how", mostly_daily(["the link is down", "packets are lost"], ["the link is down"]))
def test_a_cable_that_is_pulled_costs_the_draft_only(
    how: str, far: FarMachine, draft_host: FarHost, expected: list[Result]
) -> None:
    far.set(delay_ms=1)
    with with_draft_at(draft_host.address) as d:
        until_it_helps(d)
        r = write(d, TEXTS[0], {40: far.pull if how == "the link is down" else lambda: far.set(loss=1)})
        assert same(r, expected[0])
        until = time.monotonic() + HANG_S
        while not r.warning:  # on a fast machine both texts may end before the host counts as lost
            assert time.monotonic() < until
            time.sleep(0.5)
            r = d.generate(PROMPT, **TEXTS[1])
            assert same(r, expected[1])
        assert r.warning.startswith(f"the draft host {draft_host.address} ")
        far.plug()
        far.set(delay_ms=1)
        until_it_helps(d)


@pytest.mark.daily
def test_packets_that_are_lost_cost_four_texts_their_draft_only(
    far: FarMachine, expected_of_four: list[Result]
) -> None:
    far.set(delay_ms=1)
    with far_host(far, "draft", "-td", "1", "-np", "4") as h, client("draft", h) as d:
        check(write_all(d, {10: lambda: far.set(loss=1)}), expected_of_four)
        check(write_all(d, {}), expected_of_four)
        far.set(delay_ms=1)
        until_it_helps(d)


@pytest.mark.daily
def test_a_text_waits_for_the_target_behind_a_cable_that_is_pulled(
    far: FarMachine, verify_host: FarHost, expected: list[Result]
) -> None:
    far.set(delay_ms=1)
    with with_target_at(verify_host.address, host_patience=60) as d:
        assert d.network is not None
        figures, pulled = d.network.clients[0].figures, []

        def out() -> None:
            far.set(loss=1)
            pulled.append(figures.of_text()["network_lost_n"])

        s = d.stream(PROMPT, **TEXTS[0])
        with s:
            for i, _ in enumerate(s):
                if i == 40:
                    out()
                    while figures.of_text()["network_lost_n"] == pulled[0]:
                        s.poll()
                    far.set(delay_ms=1)
        assert same(s.result, expected[0])
        assert s.result.timings["network_lost_n"] > 0
