"""What a server bears: full queues, clients that go, are slow or send nonsense."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from served import Server, all_of, raw, request_for, served
from waits import wait_until

from duo.server.settings import Settings
from duo.text.stream_async import AsyncStream

pytestmark = pytest.mark.full

ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "n_predict": 1500, "cache_prompt": False}
# The clients of a busy machine are slow too: only the clients of `hasty` are meant to be too slow.
LIMITS = {"queue": 2, "header_timeout": 600.0, "body_timeout": 600.0, "max_body": 1.0, "sse_ping_interval": 1}
HASTY = {"header_timeout": 1.0, "body_timeout": 1.0, "keep_alive": 600}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Two places with slow passes, and two that wait."""
    with served(LIMITS, n_parallel=2, n_ctx=4096, _delay=(30_000, 1)) as s:
        yield s


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    """It does not wait long for a head or a body, but keeps connections."""
    with served(HASTY, n_parallel=1, n_ctx=256) as s:
        yield s


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Server) -> Iterator[None]:
    yield
    server.wait_until_idle()


# ---- places


def test_a_full_queue_refuses(server: Server) -> None:
    blockers = [raw(server, request_for("/completion", {**ENDLESS, "stream": True})) for _ in range(2)]
    server.wait_for_texts(2)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(server.post, "/completion", {**ENDLESS, "n_predict": 20}) for _ in range(2)]
        wait_until(lambda: server.service.admission.n_inside == 4)
        refused = server.post("/completion", ENDLESS)
        assert refused.status_code == 429 and refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) >= 1
        for s in blockers:
            s.close()
        answers = [w.result(HANG_S) for w in waiting]
    assert [a.status_code for a in answers] == [200, 200]
    assert all(a.json()["tokens_predicted"] == 20 for a in answers)


def test_whoever_has_read_the_end_may_ask_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is free by then, however long the text takes to close."""
    close = AsyncStream.close

    async def slow_close(stream: AsyncStream) -> None:
        for _ in range(10):
            with suppress(asyncio.CancelledError):  # as a pass that has begun
                await asyncio.sleep(0.01)
        await close(stream)

    monkeypatch.setattr(AsyncStream, "close", slow_close)
    with ThreadPoolExecutor(4) as pool:  # as many as there is room for
        asked = {**ENDLESS, "stream": True, "n_predict": 4}
        codes = pool.map(lambda _: [server.post("/completion", asked).status_code for _ in range(4)], range(4))
    assert list(codes) == 4 * [4 * [200]]


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
    wait_until(lambda: server.service.admission.n_inside == 4)
    for s in (*waiting, *first):
        s.close()
    server.wait_until_idle()


def test_many_clients_that_vanish(server: Server) -> None:
    for _ in range(40):
        raw(server, request_for("/completion", {**ENDLESS, "stream": True})).close()
    codes = []

    def has_a_place() -> bool:
        codes.append(server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code)
        return codes[-1] != 429

    wait_until(has_a_place, codes)  # long before 40 texts of 1500 passes
    assert codes[-1] == 200


def test_silence_brings_a_comment(server: Server) -> None:
    blockers = [raw(server, request_for("/completion", {**ENDLESS, "stream": True})) for _ in range(2)]
    server.wait_for_texts(2)
    waiting = raw(server, request_for("/completion", {**ENDLESS, "stream": True, "sse_ping_interval": 1}))
    found = b""
    while b"\n:\n\n" not in found and b":\n\n" not in found:
        more = waiting.recv(1000)
        assert more, found
        found += more
    assert found.startswith(b"HTTP/1.1 200") and b"x-accel-buffering: no" in found
    for s in (waiting, *blockers):
        s.close()


# ---- slow and bad clients


def test_slow_heads_and_bodies_end(hasty: Server) -> None:
    heads = [raw(hasty, b"POST /completion HTTP/1.1\r\nHo") for _ in range(60)]
    bodies = [
        raw(hasty, b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{") for _ in range(60)
    ]
    silent = [raw(hasty) for _ in range(20)]
    assert hasty.get("/health").status_code == 200  # meanwhile others are served
    assert hasty.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200
    for s in (*heads, *bodies, *silent):
        assert all_of(s).startswith(b"HTTP/1.1 408")


def test_a_head_that_comes_in_pieces_is_read(server: Server, hasty: Server) -> None:
    with raw(server) as s:
        for part in (b"GET /health HT", b"TP/1.1\r\nHost: localhost\r\n", b"\r\n"):
            time.sleep(0.05)
            s.sendall(part)
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
    with raw(hasty, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        s.sendall(b"GET /health HTTP/1.1\r\nHo")  # and a slow second one on the same connection
        assert b"408" in all_of(s)


@contextmanager
def idle(server: Server) -> Iterator[http.client.HTTPConnection]:
    """A connection that has had an answer."""
    with closing(http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=HANG_S)) as client:
        client.request("GET", "/health")
        assert client.getresponse().read() == b'{"status":"ok"}'
        yield client


def test_an_idle_connection_bears_a_second_request_after_header_timeout(hasty: Server) -> None:
    with idle(hasty) as client:
        with raw(hasty) as silent:  # opened later, and it waits for its first request
            assert all_of(silent).startswith(b"HTTP/1.1 408")
        client.request("GET", "/health")
        assert client.getresponse().read() == b'{"status":"ok"}'


def test_an_idle_connection_ends_after_keep_alive() -> None:
    with served({"keep_alive": 1}, n_parallel=1, n_ctx=256) as s, idle(s) as client:
        assert client.sock.recv(1) == b""


def test_large_bodies_are_refused(server: Server) -> None:
    with raw(server, b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n{") as s:
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


@pytest.mark.full
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
        settings = Settings.of({"ui": False, "api_prefix": prefix}, "demo")
        without = TestClient(make_app(Service(settings)), base_url="http://127.0.0.1")
        assert without.get(f"{prefix}/").status_code == without.get(f"{prefix}/ui/page.js").status_code == 404
