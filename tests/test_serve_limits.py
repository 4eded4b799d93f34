"""What a server bears: full queues, clients that go, are slow or send nonsense."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from served import Server, raw, request_for, served

from duo.server.settings import Settings

ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "n_predict": 1500, "cache_prompt": False}
LIMITS = {"queue": 2, "header_timeout": 1.0, "body_timeout": 1.0, "max_body": 1.0, "sse_ping_interval": 1,
          "keep_alive": 2}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Two places with slow passes, and two that wait."""
    with served(LIMITS, n_parallel=2, n_ctx=4096, _delay=(30_000, 1)) as s:
        yield s


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Server) -> Iterator[None]:
    yield
    server.wait_until_idle()


# ---- places


def test_a_full_queue_refuses(server: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        body = {**ENDLESS, "n_predict": 60}
        answers = list(pool.map(lambda _: server.post("/completion", body), range(8)))
    codes = sorted(a.status_code for a in answers)
    assert set(codes) == {200, 429} and codes.count(200) >= 4
    refused = next(a for a in answers if a.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1 and refused.json()["error"]["type"] == "rate_limit_error"
    assert len({a.json()["content"] for a in answers if a.status_code == 200}) >= 1


def test_refusals_take_no_threads(server: Server) -> None:
    def pool() -> int:
        return sum(t.name.startswith("AnyIO worker") for t in threading.enumerate())

    before = pool()
    with ThreadPoolExecutor(8) as clients:
        found = list(
            clients.map(lambda i: server.get("/nothing") if i % 2 else server.post("/completion", {}), range(32))
        )
    assert sorted({a.status_code for a in found}) == [400, 404]
    assert pool() <= before


def test_slots_while_texts_are_written(server: Server) -> None:
    texts = [raw(server, request_for("/completion", {**ENDLESS, "stream": True})) for _ in range(2)]
    server.wait_for_texts(2)
    for s in texts:
        assert s.recv(10)
    slots = server.get("/slots").json()
    full = server.get("/slots?fail_on_no_slot=1")
    gauges = server.get("/metrics").text
    for s in texts:
        s.close()
    assert [s["is_processing"] for s in slots] == [True, True]
    assert slots[0]["next_token"][0]["n_remain"] <= 1500 and slots[0]["params"]["ignore_eos"] is True
    assert slots[0]["n_prompt_tokens"] > 1 and full.status_code == 503
    share, held = (
        float(gauges.split(f"\nduo_{name} ")[1].split("\n")[0]) for name in ("cache_usage_ratio", "cache_tokens")
    )
    assert "duo_requests_running 2.0" in gauges
    assert sum(s["n_prompt_tokens"] for s in slots) <= share * 4096 <= held + 0.5


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 2])
def test_a_client_that_goes_frees_its_place(server: Server, stream: bool, n: int) -> None:
    s = raw(server, request_for("/completion", {**ENDLESS, "stream": stream, "n": n}))
    server.wait_for_texts(n)
    if stream:
        assert s.recv(10)
    s.close()
    server.wait_until_idle()  # long before 1500 passes of 30 ms
    assert server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200


def test_clients_that_go_while_they_wait_or_their_prompt_is_read(server: Server) -> None:
    first = [raw(server, request_for("/completion", {**ENDLESS, "stream": True})) for _ in range(2)]
    server.wait_for_texts(2)
    waiting = [raw(server, request_for("/completion", {**ENDLESS, "prompt": "long " * 2000})) for _ in range(2)]
    while server.service.admission.n_inside < 4:
        time.sleep(0.005)
    for s in (*waiting, *first):
        s.close()
    server.wait_until_idle()


def test_many_clients_that_vanish(server: Server) -> None:
    for _ in range(40):
        raw(server, request_for("/completion", {**ENDLESS, "stream": True})).close()
    right = server.post("/completion", {"prompt": "a", "n_predict": 2, "temperature": 0})
    while right.status_code == 429:
        time.sleep(0.05)
        right = server.post("/completion", {"prompt": "a", "n_predict": 2, "temperature": 0})
    assert right.status_code == 200


def test_silence_brings_a_comment(server: Server) -> None:
    blockers = [raw(server, request_for("/completion", {**ENDLESS, "stream": True})) for _ in range(2)]
    server.wait_for_texts(2)
    waiting = raw(server, request_for("/completion", {**ENDLESS, "stream": True, "sse_ping_interval": 1}))
    found = b""
    while b"\n:\n\n" not in found and b":\n\n" not in found:
        found += waiting.recv(1000)
    assert found.startswith(b"HTTP/1.1 200") and b"x-accel-buffering: no" in found
    for s in (waiting, *blockers):
        s.close()


# ---- slow and bad clients


def test_slow_heads_and_bodies_end(server: Server) -> None:
    heads = [raw(server, b"POST /completion HTTP/1.1\r\nHo") for _ in range(60)]
    bodies = [raw(server, b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{") for _ in range(60)]
    silent = [raw(server) for _ in range(20)]
    assert server.get("/health").status_code == 200  # meanwhile others are served
    assert server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200

    def all_of(s: socket.socket) -> bytes:
        found = b""
        while data := s.recv(1000):
            found += data
        return found

    for s in (*heads, *bodies, *silent):
        assert all_of(s).startswith(b"HTTP/1.1 408")


def test_a_head_that_comes_in_pieces_is_read(server: Server) -> None:
    with raw(server) as s:
        for part in (b"GET /health HT", b"TP/1.1\r\nHost: x\r\n", b"\r\n"):
            time.sleep(0.05)
            s.sendall(part)
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        s.sendall(b"GET /health HTTP/1.1\r\nHo")  # and a slow second one on the same connection
        found = b""
        while data := s.recv(1000):
            found += data
    assert b"408" in found


def test_an_idle_connection_is_kept_and_closed(server: Server) -> None:
    """It bears a second request after --header-timeout, and ends after --keep-alive."""
    client = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=HANG_S)
    for pause in (0.0, 1.2):
        time.sleep(pause)
        client.request("GET", "/health")
        assert client.getresponse().read() == b'{"status":"ok"}'
    assert client.sock.recv(1) == b""
    client.close()


def test_large_bodies_are_refused(server: Server) -> None:
    with raw(server, b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n{") as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 413")

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * (1 << 20)

    with suppress(httpx.TransportError):  # the server has hung up while the client was still sending
        assert httpx.post(server.url + "/completion", content=endless(), timeout=HANG_S).status_code == 413
    assert server.get("/health").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"prompt": "\xff"}',
        b"[" * 10_000,
        b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"prompt": "a", "json_schema": ' + b'{"items":' * 900 + b"{}" + b"}" * 900 + b"}",
        b'{"prompt": "a", "n_predict": ' + b"9" * 5000 + b"}",
        b'{"prompt": "a", "n_predict": 1e308}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": 1e308}',
        b'{"prompt": "a", "stop": ["\\ud800"]}',
        b'{"prompt": "\\ud800"}',
    ],
    ids=range(15),
)
def test_nonsense_is_a_mistake_and_no_failure(server: Server, body: bytes) -> None:
    for path in ("/completion", "/v1/chat/completions", "/v1/messages", "/tokenize"):
        answer = httpx.post(server.url + path, content=body, timeout=HANG_S)
        assert answer.status_code in (200, 400), answer.text
        assert "Traceback" not in answer.text
        assert path != "/completion" or answer.status_code == 400


def test_no_http_at_all(server: Server) -> None:
    with raw(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(200) + b"\r\n\r\n") as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 400")
    with raw(server, b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000) as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 400")


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with served({"timeout": 0.5}, n_parallel=1) as s:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(s.url.rsplit(":", 1)[1])))
            client.sendall(request_for("/completion", {**ENDLESS, "stream": True, "n_probs": 100}))
            s.wait_for_texts(1)
            s.wait_until_idle()  # long before 1500 tokens, which would be some ten megabytes
            found = 0
            with suppress(ConnectionResetError):
                while data := client.recv(1 << 16):
                    found += len(data)
        assert 0 < found < 10 << 20
        assert s.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200


def test_pages_for_a_browser() -> None:
    from fastapi.testclient import TestClient

    from duo.server.app import make_app
    from duo.server.service import Service

    for prefix in ("", "/llm"):
        service = Service(Settings.of({"api_key": "k", "api_prefix": prefix}, "demo"))
        client = TestClient(make_app(service))
        page = client.get(f"{prefix}/")
        assert "<title>duo</title>" in page.text and page.headers["content-type"].startswith("text/html")
        assert client.get(f"{prefix}/ui/page.js").status_code == 200  # without a key: it shows nothing of the model
        assert client.get(f"{prefix}/ui/../../../etc/passwd").status_code in (401, 404)
        assert client.get(f"{prefix}/v1/models").status_code == client.get(f"{prefix}/duo/trace").status_code == 401
        without = TestClient(make_app(Service(Settings.of({"ui": False, "api_prefix": prefix}, "demo"))))
        assert without.get(f"{prefix}/").status_code == without.get(f"{prefix}/ui/page.js").status_code == 404
