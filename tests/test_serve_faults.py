"""What goes wrong around a server under load: a host dies, clients vanish or crawl, the disk is full, it must end."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
from conftest import EXACT, HANG_S
from served import GREEDY, TALE, Server, all_of, parsed, raw, request_for, served, with_small_buffers
from storms import held, threads
from waits import wait_until

from duo import Duo
from duo.models.demo import demo_pair
from duo.server import lifecycle as serving

pytestmark = pytest.mark.full

ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "n_predict": 1500, "stream": True}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset
POOLS = ("asyncio_", "duo-serve")
PROMPTS = ["Once upon a time", "The king said", "In the forest lived", "One day the dog"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def holdings() -> dict[str, int]:
    """Without the threads of pools, which have an upper limit and stay."""
    n_pooled = sum(t.name.startswith(POOLS) for t in threading.enumerate())
    return {**held(), "threads": threads() - n_pooled}


def engine_is_idle(duo: Duo) -> bool:
    u = duo.engine.usage
    inside = u["n_open"] + u["n_queued"] + u["n_unfreed"] + u["target"]["n_active"] + u["target"]["n_parked"]
    return inside + u["draft"]["n_active"] == 0 and sum(u["target"]["cells"]) <= duo.n_ctx()


@contextmanager
def nothing_leaks(server: Server) -> Iterator[None]:
    """Afterwards the server holds what it held before: texts, branches, threads, sockets, descriptors."""
    server.post("/completion", {"prompt": "a", "n_predict": 2})
    server.wait_until_idle()
    before, n_fds = holdings(), descriptors()
    yield
    server.wait_until_idle()
    until = time.monotonic() + HANG_S
    while not engine_is_idle(server.duo) or descriptors() > n_fds or any(holdings()[k] > n for k, n in before.items()):
        assert time.monotonic() < until, (server.duo.engine.usage, descriptors(), n_fds, holdings(), before)
        time.sleep(0.02)


# ---- the draft's host


@pytest.mark.daily
def test_a_draft_host_that_is_killed_under_eight_streams() -> None:
    pytest.importorskip("grpc")
    from hosts import host

    o: dict[str, Any] = {"n_predict": 120, "ignore_eos": True, "stream": True}
    bodies = [{**o, "prompt": p, **more} for p in PROMPTS for more in ({"temperature": 0}, {"seed": 5})]
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        alone = [d.generate(b["prompt"], max_tokens=120, ignore_eos=True, seed=b.get("seed", -1),
                            temperature=b.get("temperature", 0.8)).text for b in bodies]  # fmt: skip
    with (
        host("draft", "-td", "1", "-np", "8", "-cd", "4096") as h,
        served({"queue": 8}, draft_host=h.address, n_parallel=8, n_ctx=4096, always=True, delay=(10_000, 3),
               **EXACT) as s,
    ):  # fmt: skip
        running = threading.Barrier(len(bodies) + 1)

        def ask(body: dict[str, Any]) -> str:
            with httpx.stream("POST", s.url + "/completion", json=body, timeout=HANG_S) as answer:
                lines = answer.iter_lines()
                found = [next(lines)]
                running.wait(HANG_S)
                return "\n".join([*found, *lines])

        with ThreadPoolExecutor(len(bodies)) as pool:
            asked = [pool.submit(ask, b) for b in bodies]
            running.wait(HANG_S)
            h.kill()
            texts = ["".join(e["content"] for _, e in parsed(a.result())) for a in asked]
        assert texts == alone
        assert s.get("/health").status_code == 200
        found = s.post("/completion", {**bodies[0], "stream": False}).json()  # without a draft
        assert found["content"] == alone[0]


# ---- clients


@pytest.mark.parametrize("n", [20, pytest.param(1000, marks=pytest.mark.proof)])
def test_clients_that_vanish_in_mid_stream(server: Server, alone: Duo, n: int) -> None:
    right = alone.generate("The king said", **GREEDY).text
    dice = random.Random(n)
    seeds = [dice.random() for _ in range(n)]

    def vanish(x: float) -> int:
        until = time.monotonic() + HANG_S
        while time.monotonic() < until:
            path = ("/completion", "/v1/chat/completions", "/v1/completions", "/v1/messages")[int(x * 40) % 4]
            s = raw(
                server, request_for(path, {**ENDLESS, "messages": TALE, "max_tokens": 1500, "n": 1 + int(x * 8) % 2})
            )
            with s:
                if x < 0.1:  # before anything has come
                    return 0
                n_read = 0
                while n_read < x * 4000 and (data := s.recv(4096)):
                    n_read += len(data)
                    if data.startswith(b"HTTP/1.1 429"):
                        break
                else:
                    if x > 0.5:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    return n_read
            time.sleep(0.01)  # the queue was full
        raise AssertionError("the queue is always full")

    with nothing_leaks(server), ThreadPoolExecutor(16) as pool:
        gone = [pool.submit(vanish, x) for x in seeds]
        for _ in range(10):  # somebody who stays does not notice
            answer = server.post("/completion", {"prompt": "The king said", **GREEDY})
            assert answer.status_code == 429 or answer.json()["content"] == right
        assert sum(g.result() for g in gone) > n * 500
    assert server.post("/completion", {"prompt": "The king said", **GREEDY}).json()["content"] == right


def test_two_hundred_clients_at_once(alone: Duo) -> None:
    """Each has a connection of its own. With room in the queue all get their text; without, those left over get 429."""
    n = 200
    right = alone.generate("The king said", temperature=0.0, max_tokens=3).text
    body = {"prompt": "The king said", "temperature": 0, "n_predict": 3}
    ask = request_for("/completion", body).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    for room, codes in ((n, {200}), (4, {200, 429})):
        with served({"queue": room, "header_timeout": HANG_S}, n_parallel=4, n_ctx=512, **EXACT) as s:
            clients = [raw(s) for _ in range(n)]
            for c in clients:
                c.sendall(ask)
            answers = [all_of(c) for c in clients]
            for c in clients:
                c.close()
            assert s.get("/health").status_code == 200
        assert {int(a[9:12]) for a in answers} <= codes
        for a in answers:
            found = json.loads(a.partition(b"\r\n\r\n")[2])
            assert found["content"] == right if a.startswith(b"HTTP/1.1 200") else found["error"]["code"] == 429


def test_clients_that_crawl(alone: Duo) -> None:
    """200 connections that send a byte now and then, in the head or in the body, for as long as they may."""
    right = alone.generate("The king said", **GREEDY).text
    head = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    with served({"header_timeout": 1.5, "body_timeout": 1.5}) as s, ExitStack() as stack:
        with nothing_leaks(s):
            heads = [stack.enter_context(raw(s, head)) for _ in range(100)]
            bodies = [stack.enter_context(raw(s, head + b"\r\n{")) for _ in range(100)]
            n_served = 0
            for _ in range(8):
                for c in heads + bodies:
                    with suppress(OSError):  # the server has given it up
                        c.send(b"X")
                answer = s.post("/completion", {"prompt": "The king said", **GREEDY})
                n_served += answer.json()["content"] == right
                time.sleep(0.05)
            assert n_served == 8
            for c in heads + bodies:
                found = b""
                with suppress(ConnectionResetError):
                    while data := c.recv(1000):
                        found += data
                assert found.startswith(b"HTTP/1.1 408") or not found, found
            stack.close()
        refused = s.get("/metrics").text
    assert 'duo_requests_refused_total{reason="head_too_slow"} 100.0' in refused
    assert 'duo_requests_refused_total{reason="body_too_slow"} 100.0' in refused


# More than a connection with small buffers takes, of a client that reads nothing.
WORDY: dict[str, Any] = {**ENDLESS, "n_predict": 100, "n_probs": 100}


def test_a_second_signal_waits_for_no_client() -> None:
    """One that reads nothing has its connection for END_S after the first signal."""
    with pytest.MonkeyPatch.context() as m, with_small_buffers(), socket.socket() as deaf:
        m.setattr(serving, "END_S", 10 * HANG_S)
        with served({"drain": 10 * HANG_S}, n_parallel=1, n_ctx=1024) as s:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", int(s.url.rsplit(":", 1)[1])))
            deaf.sendall(request_for("/completion", WORDY))
            s.wait_for_writings(1)
            wait_until(lambda: not s.service.admission.n_inside)  # the text is written, and waits for its client
            assert s.service.writings
        # Its end sends two signals, and waits for HANG_S at most.


def test_clients_that_read_nothing_hold_up_nobody(alone: Duo) -> None:
    """Their texts are written to the end and wait for them, but hold no place; draining does not wait for ever."""
    right = alone.generate("The king said", **GREEDY).text
    with pytest.MonkeyPatch.context() as m, with_small_buffers(), ExitStack() as stack:
        m.setattr(serving, "END_S", 1)
        with served({"queue": 1, "drain": 0.5}, n_parallel=1, n_ctx=2048) as s:
            for n in range(1, 4):  # more than may be inside
                deaf = stack.enter_context(socket.socket())
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect(("127.0.0.1", int(s.url.rsplit(":", 1)[1])))
                deaf.sendall(request_for("/completion", WORDY))
                s.wait_for_writings(n)
                assert s.post("/completion", {"prompt": "The king said", **GREEDY}).json()["content"] == right
            assert s.service.admission.n_inside == 0 and len(s.service.writings) == 3
            assert "duo_requests_waiting 0.0" in s.get("/metrics").text
            s.serving.end()
            until = time.monotonic() + HANG_S
            with suppress(httpx.TransportError):
                while s.get("/livez").status_code and time.monotonic() < until:
                    time.sleep(0.05)
        assert time.monotonic() < until
