"""The draft or the target on another machine, played by processes on this one: same text, figures, seats, endings."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HANG_S, start_duo
from hosts import LONG, PROMPT, HostProcess, host, remote, until_it_helps
from sizes import mostly_daily
from storms import sockets, threads
from waits import wait_until

from duo import Duo, DuoError
from duo.models.demo import demo_pair

pytest.importorskip("grpc")

Run = Callable[..., tuple[int, str, str]]
TEXTS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 40},
    {"temperature": 0.8, "seed": 5, "max_tokens": 40},
    {"temperature": 1.0, "seed": 6, "repeat_penalty": 1.2, "logit_bias": {265: -1.0}, "max_tokens": 40},
    {"temperature": 1.0, "seed": 3, "dry_multiplier": 2.0, "dry_allowed_length": 1, "xtc_probability": 0.5,
     "typical_p": 0.9, "top_n_sigma": 2.0, "dynatemp_range": 0.4, "max_tokens": 40},
    {"temperature": 0, "max_tokens": 60, "stop": [" young"]},
    {"temperature": 0.8, "seed": 2, "max_tokens": 60, "grammar": 'root ::= "[" [a-z ]{4,20} ("," [a-z ]{4,20})* "]"'},
]  # fmt: skip


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        return [d.generate(PROMPT, **o) for o in TEXTS]


def test_a_remote_draft_changes_nothing_but_the_time(draft_host: HostProcess, expected: list[Any]) -> None:
    with remote("draft", draft_host) as d:
        results = [d.generate(PROMPT, **o) for o in TEXTS]
        assert d.draft is None
        t = until_it_helps(d).timings
    assert 0 < t["draft_steps_n"] <= t["draft_nodes_n"] and t["draft_busy_share"] > 0
    assert t["draft_hidden_share"] is None
    for r, e in zip(results, expected, strict=True):
        assert (r.text, r.tokens, r.finish_reason, r.warning) == (e.text, e.tokens, e.finish_reason, "")
    # Of a text that waits for its draft: the others may have ended before anything was sent.
    assert t["network_sent_bytes"] > 100 and t["network_round_trip_ms"] > 0


def test_a_remote_target_writes_the_text_that_it_writes_there(verify_host: HostProcess, expected: list[Any]) -> None:
    with remote("verify", verify_host) as d:
        results = [d.generate(PROMPT, **o) for o in TEXTS]
        with pytest.raises(DuoError, match="on another machine"):
            _ = d.target
        r = until_it_helps(d)
    assert any(r.from_draft)
    assert r.timings["draft_n_accepted"] <= r.timings["draft_nodes_n"] and r.timings["draft_busy_share"] > 0
    for r, e in zip(results, expected, strict=True):
        assert (r.text, r.tokens, r.finish_reason, r.warning) == (e.text, e.tokens, e.finish_reason, "")


@pytest.mark.parametrize("role", ["draft", "verify"])
def test_the_round_trip_is_known_from_the_handshake_on(role: str, request: pytest.FixtureRequest) -> None:
    with remote(role, request.getfixturevalue(f"{role}_host")) as d:
        assert d.network is not None
        (client,) = d.network.clients
        until = time.monotonic() + HANG_S
        while not client.host_model:  # loading does not wait long for a draft host
            assert time.monotonic() < until
            time.sleep(0.02)
        assert client.figures.round_trip_ms > 0
        assert d.generate(PROMPT, temperature=0, max_tokens=1).timings["network_round_trip_ms"] > 0


def test_log_probabilities_cross_the_network(verify_host: HostProcess) -> None:
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        here = d.generate(PROMPT, temperature=0, max_tokens=12, logprobs=3)
    with remote("verify", verify_host) as d:
        there = d.generate(PROMPT, temperature=0, max_tokens=12, logprobs=3)
    assert there.logprobs == here.logprobs


def test_the_next_text_finds_its_beginning_cached(verify_host: HostProcess) -> None:
    with remote("verify", verify_host) as d:
        d.generate(PROMPT + " a tin soldier and a", temperature=0, max_tokens=4)
        again = d.generate(PROMPT + " a tin soldier and a princess", temperature=0, max_tokens=4)
    assert again.timings["cache_n"] >= 5


@pytest.mark.parametrize("role", ["draft", "verify"])
def test_an_abandoned_text_frees_its_place(role: str, request: pytest.FixtureRequest) -> None:
    h = request.getfixturevalue(f"{role}_host")
    with remote(role, h) as d:
        for _ in range(4):
            with d.stream(PROMPT, ignore_eos=True, max_tokens=-1) as s:
                for _, _chunk in zip(range(5), s, strict=False):
                    pass
            assert s.finish_reason == "cancelled"
        assert d.generate(PROMPT, temperature=0, max_tokens=8).finish_reason == "length"


def test_close_in_the_middle_of_it_all(draft_host: HostProcess) -> None:
    for n in (1, 31):
        d = remote("draft", draft_host)
        s = d.stream(PROMPT, **LONG)
        for _ in range(n):
            next(s)
        d.close()
        with pytest.raises(DuoError, match="closed"):
            next(s)


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["draft"]))
def test_two_clients_at_once_do_not_hear_of_each_other(
    role: str, request: pytest.FixtureRequest, expected: list[Any]
) -> None:
    h = request.getfixturevalue(f"{role}_host")
    with remote(role, h) as one, remote(role, h) as two, ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda d: [d.generate(PROMPT, **o) for o in TEXTS[:2]], (one, two)))
        both += pool.map(lambda d: [until_it_helps(d, **o) for o in TEXTS[:2]], (one, two))
    for results in both:
        assert [r.text for r in results] == [e.text for e in expected[:2]]


def test_a_client_beyond_the_last_seat_is_told_that_the_host_is_busy() -> None:
    with (
        host("draft", "-td", "1") as h,
        remote("draft", h, delay=(500_000, 1)) as one,  # its text lasts
        remote("draft", h, delay=(20_000, 2)) as two,  # and this one longer than the host looks for a seat
        one.stream(PROMPT, ignore_eos=True, max_tokens=-1) as s,
    ):
        for _ in range(20):  # the other may be the first to take the only seat
            next(s)
            r = two.generate(PROMPT, temperature=0, max_tokens=300)
            assert r.finish_reason == "length"
            if "cannot take another text (the host is busy with 1 text" in r.warning:
                break
        else:
            raise AssertionError(r.warning)


def test_a_unix_socket_and_a_stale_one(tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/s"
    with host("draft", listen=where) as h:
        assert oct(os.stat(tmp_path / "s").st_mode & 0o777) == "0o600"
        with remote("draft", h) as d:
            until_it_helps(d)
        h.kill()
        assert (tmp_path / "s").exists()
        h.start()
        with remote("draft", h) as d:
            until_it_helps(d)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("role", "flag"), [("draft", "-ngld"), ("draft", "-cd"), ("verify", "-ngl"), ("verify", "-mg")]
)
def test_options_of_a_model_that_is_elsewhere_are_refused(role: str, flag: str, run: Run) -> None:
    code, out, err = run(f"--{role}-host", "127.0.0.1:1", flag, "1", "-p", PROMPT)
    assert (code, out) == (1, "")
    assert err.endswith(f"({flag}) belongs to the model on the other machine; give it to duo {role}-host there\n")


@pytest.mark.daily
def test_a_unix_socket_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    taken = tmp_path / "s"

    def refused(where: Path) -> str:
        p = start_duo("draft-host", "--listen", f"unix:{where}", "-td", "1")
        out, err = p.communicate(timeout=HANG_S)
        assert (p.returncode, out) == (1, b"")
        return err.decode()

    with host("draft", listen=f"unix:{taken}") as h:
        why = "another process listens there, choose another path"
        assert refused(taken) == f"duo: the host cannot listen on unix:{taken}; {why}\n"
        with remote("draft", h) as d:
            until_it_helps(d)
    precious = tmp_path / "precious"
    precious.write_text("x")
    assert refused(precious) == (
        f"duo: the host cannot listen on unix:{precious}; a file with that name exists, choose another path\n"
    )
    assert precious.read_text() == "x"
    assert f"there is no folder {tmp_path}/no" in refused(tmp_path / "no" / "s")


@pytest.mark.parametrize("how", mostly_daily([signal.SIGTERM, signal.SIGINT], [signal.SIGTERM]))
def test_a_host_ends_when_it_is_told_to_even_in_a_text(how: signal.Signals) -> None:
    with (
        host("draft") as h,
        remote("draft", h, n_ctx=4096) as d,
        d.stream(PROMPT, ignore_eos=True, temperature=0, max_tokens=250) as s,
    ):
        next(s)
        h.send(how)
        _, err = h.process.communicate(timeout=HANG_S)
        assert (h.process.returncode, err) == (0, b"")
        for _ in s:
            pass
        assert s.finish_reason == "length"


def test_the_program_with_a_draft_host(draft_host: HostProcess, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    p = start_duo("--draft-host", draft_host.address, "-p", PROMPT, "-n", 100, "--temp", 0, "--json", "--trace", trace)
    out, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 0, err
    first, *_ = err.decode().splitlines()
    assert f"+ draft {demo_pair()[1].name} on {draft_host.address}; async" in first
    assert "network: round trip " in err.decode()
    figures = json.loads(out)
    assert figures["timings"]["network_received_bytes"] > 0
    assert figures["warning"] is None
    curves = [r for r in json.loads(trace.read_text()) if r["name"] == "network"]
    assert curves and curves[-1]["ph"] == "C" and curves[-1]["args"]["sent_bytes"] > 0


@pytest.mark.daily  # the program has a draft host above, and the other tests have verify hosts
def test_the_program_with_a_verify_host(verify_host: HostProcess) -> None:
    p = start_duo("--verify-host", verify_host.address, "-p", PROMPT, "-n", 20, "--temp", 0)
    out, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 0, err
    assert out.decode().startswith(PROMPT)
    assert err.decode().startswith(f"duo: {demo_pair()[0].name} on {verify_host.address} + draft ")


def test_nothing_is_left_when_a_duo_is_closed(draft_host: HostProcess) -> None:
    def one() -> None:
        with remote("draft", draft_host) as d:
            d.generate(PROMPT, max_tokens=10)

    def named() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith("duo-")}

    others = named()  # of other tests
    for _ in range(3):
        one()
    before = (threads(), sockets())
    for _ in range(n := 6):
        one()
    assert named() <= others
    # gRPC's own pool comes and goes. One for each Duo would stay, and be as many.
    wait_until(lambda: threads() < before[0] + n, "threads stay")
    assert sockets() <= before[1] + 1


def test_two_hosts_on_one_port_are_one_sentence(draft_host: HostProcess) -> None:
    p = start_duo("draft-host", "--listen", draft_host.address)
    out, err = p.communicate(timeout=HANG_S)
    assert (p.returncode, out) == (1, b"")
    why = "it is in use or not an address of this machine, choose another"
    assert err.decode() == f"duo: the host cannot listen on {draft_host.address}; {why}\n"


def test_a_duo_that_is_not_closed_does_not_keep_the_program(draft_host: HostProcess) -> None:
    code = (
        "import duo, sys\n"
        "d = duo.Duo(draft_host=sys.argv[1])\n"
        "s = d.stream('Once', ignore_eos=True, max_tokens=-1)\n"
        "next(s)\n"
        "print('here')\n"
    )
    from conftest import run_python

    r = run_python(code, draft_host.address)
    assert (r.returncode, r.stdout) == (0, "here\n"), r.stderr


@pytest.mark.parametrize("wrong", ["", "x", "host", "host:", "host:99999", ":1", "a b:1", "unix:relative"])
def test_invalid_host_addresses(wrong: str) -> None:
    with pytest.raises(DuoError, match=r"write it as host:port|write a Unix socket as unix:/path"):
        Duo(draft_host=wrong)


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(DuoError, match="choose one"):
        Duo(draft_host="localhost:1", verify_host="localhost:1")
    with pytest.raises(DuoError, match="leave out one of them"):
        Duo(demo_pair()[0], demo_pair()[1], draft_host="localhost:1")
    with pytest.raises(DuoError, match="leave out one of them"):
        Duo(demo_pair()[0], verify_host="localhost:1")
    with pytest.raises(DuoError, match="belong together"):
        Duo(draft_host="localhost:1", host_cert="x")
