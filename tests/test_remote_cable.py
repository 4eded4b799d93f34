"""A cable that is pulled or long: packets that get lost without a word, and a round trip of 60 ms."""

import threading

import pytest
from cable import Cable
from hosts import GREEDY, KERNELS, PROMPT, SEEDED, host, remote, until_it_helps, write

pytest.importorskip("grpc")


@pytest.mark.daily
def test_a_cable_that_is_pulled_from_the_draft_host(long_texts: dict[str, str]) -> None:
    # One seat: when the client comes back, the host still believes in the old connection and gives its seat up.
    with (
        host("draft", "-td", "1", "-np", "1") as h,
        Cable(h.address) as cable,
        remote("draft", cable, delay=(70_000, 1)) as d,
    ):
        r = write(d, SEEDED, {50: cable.pull})
        assert r.text == long_texts["seeded"]
        assert r.timings["draft_n_accepted"] > 0
        assert "does not answer" in r.warning
        assert r.timings["network_lost_n"] == 1
        cable.mend()
        r = until_it_helps(d, **SEEDED | {"max_tokens": 40})
        assert long_texts["seeded"].startswith(r.text) and r.timings["network_lost_n"] == 0


@pytest.mark.daily  # test_remote_failures kills the host
def test_a_cable_that_is_pulled_from_the_verify_host(long_texts: dict[str, str]) -> None:
    with host("verify", "-t", "1", "-c", "1024", "-np", "1", *KERNELS) as h, Cable(h.address) as cable:

        def pull() -> None:
            cable.pull()
            threading.Timer(2.0, cable.mend).start()

        with remote("verify", cable) as d:
            r = write(d, GREEDY, {50: pull})
            assert r.text == long_texts["greedy"]
            assert len(r.tokens) == GREEDY["max_tokens"]
            assert r.timings["network_lost_n"] >= 1


@pytest.mark.daily
@pytest.mark.parametrize("role", ["draft", "verify"])
def test_a_long_way(role: str, long_texts: dict[str, str]) -> None:
    args = ("-td", "1") if role == "draft" else ("-t", "1", "-c", "1024", *KERNELS)
    lasts = {"delay": (20_000, 1)}  # beyond the first answer to a ping
    with host(role, *args) as h, Cable(h.address, delay_s=0.03) as cable, remote(role, cable, **lasts) as d:
        r = d.generate(PROMPT, **SEEDED | {"max_tokens": 120})
        assert long_texts["seeded"].startswith(r.text)
        assert r.warning == ""
        assert r.timings["network_round_trip_ms"] > 59
