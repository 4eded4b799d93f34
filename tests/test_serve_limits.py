"""What a server bears: clients that are slow or send nonsense."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import httpx
import pytest
from conftest import HANG_S
from served import ENDLESS, Server, all_of, narrow, one_answer, raw, request_for, served, with_small_buffers
from uvicorn.protocols.http.h11_impl import H11Protocol
from waits import wait_until

from duo.server.settings import ServerSettings

pytestmark = pytest.mark.full

# Only the clients of `hasty` are meant to be too slow.
HASTY = {"header_timeout": 1.0, "body_timeout": 1.0, "keep_alive": 600}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with narrow() as s:
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


def test_a_head_that_comes_in_pieces_is_read(server: Server, hasty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = H11Protocol.data_received, list[bytes]()
    monkeypatch.setattr(H11Protocol, "data_received", lambda self, data: (taken.append(data), take(self, data)))
    parts = [b"GET /health HT", b"TP/1.1\r\nHost: localhost\r\n", b"\r\n"]
    with raw(server) as s:
        for i, part in enumerate(parts):
            s.sendall(part)
            wait_until(lambda n=i + 1: len(taken) == n)
        assert taken == parts
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
    with raw(hasty, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        s.sendall(b"GET /health HTTP/1.1\r\nHo")  # and a slow second one on the same connection
        assert b"408" in all_of(s)


def test_a_body_that_comes_after_its_refusal(server: Server, hasty: Server) -> None:
    """It is read to its end, and the connection bears the next request, or it ends without a second answer."""
    head = b"POST /completion HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\n"
    with raw(server, head) as s:
        assert one_answer(s).startswith(b"HTTP/1.1 403")
        s.sendall(b"123456789")
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one_answer(s).startswith(b"HTTP/1.1 200")
    before = hasty.n_refused("head_too_slow")
    with raw(hasty, head) as lazy:
        assert all_of(lazy).count(b"HTTP/1.1") == 1  # its body never comes
    assert hasty.n_refused("head_too_slow") == before


def test_a_body_that_comes_after_its_refusal_is_no_head(hasty: Server) -> None:
    head = b"POST /completion HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\n"
    with raw(hasty, head + b"1234") as s:
        first = one_answer(s)
        with suppress(OSError):  # on a busy machine the server may have given the body up
            s.sendall(b"56789")
        with raw(hasty) as silent:  # opened later; it gets the time that a head has
            assert all_of(silent).startswith(b"HTTP/1.1 408")
        with suppress(OSError):
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert s.recv(12) in (b"HTTP/1.1 200", b"")  # no 408 came in between
    assert first.startswith(b"HTTP/1.1 403")


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


@pytest.mark.daily
def test_a_body_of_100_mb_is_read_to_its_end_where_it_may_be_that_large() -> None:
    def large() -> Iterator[bytes]:
        yield b'{"prompt": "The king said", "n_predict": 4, "temperature": 0'
        for _ in range(100):
            yield b" " * (1 << 20)
        yield b"}"

    with served({"max_body": 128}, n_parallel=1, n_ctx=256) as s:
        right = s.post("/completion", {"prompt": "The king said", "n_predict": 4, "temperature": 0}).json()["content"]
        answer = httpx.post(s.url + "/completion", content=large(), timeout=HANG_S)
        assert answer.json()["content"] == right


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


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
def test_a_number_that_no_answer_can_repeat(server: Server, number: str) -> None:
    for more in ("", ', "stream": true'):
        body = f'{{"input": "hi", "max_output_tokens": 4, "metadata": {{"x": {number}}}{more}}}'
        answer = server.send("/v1/responses", body.encode(), {})
        assert (
            answer.status_code == 400 and f"{number!r}, which is no finite number" in answer.json()["error"]["message"]
        )


def test_no_http_at_all(server: Server) -> None:
    with raw(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(200) + b"\r\n\r\n") as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 400")
    with raw(server, b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000) as s:
        assert s.recv(1000).startswith(b"HTTP/1.1 400")


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with with_small_buffers(), served({"timeout": 0.5}, n_parallel=1) as s:
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
        service = Service(ServerSettings.of({"api_key": "k", "api_prefix": prefix}, "demo"))
        client = TestClient(make_app(service))
        page = client.get(f"{prefix}/")
        assert "<title>duo</title>" in page.text and page.headers["content-type"].startswith("text/html")
        assert client.get(f"{prefix}/ui/page.js").status_code == 200  # without a key: it shows nothing of the model
        assert client.get(f"{prefix}/ui/../../../etc/passwd").status_code in (401, 404)
        assert client.get(f"{prefix}/v1/models").status_code == client.get(f"{prefix}/duo/trace").status_code == 401
        settings = ServerSettings.of({"ui": False, "api_prefix": prefix}, "demo")
        without = TestClient(make_app(Service(settings)), base_url="http://127.0.0.1")
        assert without.get(f"{prefix}/").status_code == without.get(f"{prefix}/ui/page.js").status_code == 404
