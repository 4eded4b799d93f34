"""What a server bears: full queues, clients that go, are slow or send nonsense, keys, signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import HANG_S, start_duo
from hosts import make_certificate
from served import TALE, Server, served

from duo.errors import BadValue
from duo.options.validate import serve_options
from duo.server.listening import check_open, check_tls, listeners
from duo.server.settings import Settings

ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "n_predict": 1500, "cache_prompt": False}
LIMITS = {"queue": 2, "header_timeout": 1.0, "body_timeout": 1.0, "max_body": 1.0, "sse_ping_interval": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Two places with slow passes, and two that wait."""
    with served(LIMITS, n_parallel=2, n_ctx=4096, _delay=(30_000, 1)) as s:
        yield s


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Server) -> Iterator[None]:
    yield
    server.wait_until_idle()


def raw(server: Server, data: bytes = b"") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    s = socket.create_connection((host, int(port)), HANG_S)
    s.sendall(data)
    return s


def request_for(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data)


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
    assert 'duo_requests_refused_total{reason="queue_full"}' in server.get("/metrics").text


def test_slots_while_texts_are_written(server: Server) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(server.post, "/completion", {**ENDLESS, "n_predict": 40}) for _ in range(2)]
        server.wait_for_texts(2)
        slots = server.get("/slots").json()
        full = server.get("/slots?fail_on_no_slot=1")
        gauges = server.get("/metrics").text
        assert [f.result().status_code for f in found] == [200, 200]
    busy = [s for s in slots if s["is_processing"]]
    assert busy and busy[0]["next_token"][0]["n_remain"] <= 40 and busy[0]["params"]["ignore_eos"] is True
    assert full.status_code == 503
    assert "duo_requests_running 2.0" in gauges and "duo_cache_usage_ratio 0.0\n" not in gauges


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


# ---- who may come


def test_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first-key\n\nsecond-key\n")
    with served({"api_key_file": str(file), "api_key": "third-key", "api_prefix": "/llm", "metrics_compat": "llamacpp"},
                n_parallel=1) as s:  # fmt: skip
        for path in ("/v1/models", "/slots", "/metrics", "/props", "/nothing"):
            answer = s.get(path)
            assert answer.status_code == 401 and answer.json()["error"]["type"] == "authentication_error"
            assert s.get(path, headers={"X-Api-Key": "first-ke"}).status_code == 401
        assert s.get("/health").status_code == 200
        for key in ("first-key", "second-key", "third-key"):
            assert s.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
            assert s.get("/v1/models", headers={"X-Api-Key": key}).status_code == 200
        text = s.get("/metrics", headers={"X-Api-Key": "third-key"}).text
        assert "llamacpp:requests_deferred 0.0" in text and "llamacpp:tokens_predicted_total 0.0" in text


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ("localhost", "http://localhost:3000", True),
        ("localhost", "http://127.0.0.1", True),
        ("localhost", "http://[::1]:80", True),
        ("localhost", "https://localhost.evil.example", False),
        ("localhost", "https://evil.example", False),
        ("https://a.example, https://b.example", "https://b.example", True),
        ("https://a.example", "http://localhost", False),
        ("*", "https://evil.example", True),
    ],
)
def test_web_pages_of_others(origins: str, origin: str, allowed: bool) -> None:
    from fastapi.testclient import TestClient

    from duo.server.app import make_app
    from duo.server.service import Service

    client = TestClient(make_app(Service(Settings.of({"cors_origins": origins, "api_key": "k"}, "demo"))))
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    answers = [client.options("/v1/models", headers=asked), client.get("/v1/models", headers={"Origin": origin})]
    assert answers[1].status_code == 401
    for answer in answers:
        assert (answer.headers.get("access-control-allow-origin") in (origin, "*")) is allowed


def test_other_machines_only_if_they_may() -> None:
    def check(**given: Any) -> None:
        o = serve_options(given)
        check_open(o, has_keys=bool(given.get("api_key")))

    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.9", "/tmp/x.sock", "unix:x", "a.sock"):
        check(host=host)
    for host in ("0.0.0.0", "::", "192.168.1.2", "host.example", "127.0.0.1,0.0.0.0"):
        with pytest.raises(BadValue, match="lets other machines"):
            check(host=host)
        check(host=host, insecure=True)
        check(host=host, api_key="k")
        check(host=host, ssl_cert_file="c", ssl_key_file="k")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": ","}, "names no address"),
        ({"api_key": " ,"}, "names no key"),
        ({"api_key_file": "/nowhere"}, "cannot be read"),
        ({"ssl_key_file": "k"}, "belong together"),
        ({"ssl_key_file": "/nowhere", "ssl_cert_file": "/nowhere"}, "cannot be used"),
        ({"alias": " , "}, "names nothing"),
        ({"api_prefix": "x"}, "does not begin with /"),
        ({"host": "256.1.1.1"}, "cannot listen"),
        ({"host": "unix:/nowhere/x"}, "cannot listen"),
        ({"port": 70000}, "port"),
        ({"queue": -1}, "queue"),
    ],
)
def test_bad_options(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Settings.of(given, "demo")
        o = serve_options(given)
        check_tls(o)
        listeners(o)


def test_tls(tmp_path: Path) -> None:
    authority = make_certificate(tmp_path, "authority")
    cert, key = make_certificate(tmp_path, "server", authority)
    with served({"ssl_cert_file": str(cert), "ssl_key_file": str(key)}, n_parallel=1) as s:
        context = ssl.create_default_context(cafile=authority[0])
        assert s.url.startswith("https://")
        assert httpx.get(s.url + "/health", verify=context, timeout=HANG_S).json() == {"status": "ok"}


# ---- the program


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], str]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> tuple[subprocess.Popen[bytes], str]:
        p = start_duo("serve", "--port", "0", "-c", "2048", *args, env={**os.environ, "DUO_PROFILES": "off"})
        started.append(p)
        assert p.stdout is not None
        line = p.stdout.readline().decode()
        return p, line.split(" on ")[1].split(" (")[0] if " on " in line else line

    yield start
    for p in started:
        p.kill()
        p.communicate()


def test_sigterm_lets_eight_texts_end(program: Callable[..., tuple[subprocess.Popen[bytes], str]]) -> None:
    p, url = program("-np", "4", "--drain", "60")
    answers: list[httpx.Response] = []

    def ask() -> None:
        body = {"messages": TALE, "max_tokens": 250, "ignore_eos": True, "stream": True}
        answers.append(httpx.post(url + "/v1/chat/completions", json=body, timeout=HANG_S))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    while httpx.get(url + "/metrics").text.count("duo_requests_running 4.0") == 0:
        time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    states = set()
    while True:
        try:  # the port is open for a while, and says that the server is not ready
            states.add(httpx.get(url + "/health", timeout=HANG_S).status_code)
            refused = httpx.post(url + "/completion", json={"prompt": "a"}, timeout=HANG_S)
            if refused.status_code == 503:
                states.add("refused")
        except httpx.TransportError:
            break
    for t in threads:
        t.join(HANG_S)
    assert p.wait(HANG_S) == 0
    assert 503 in states and "refused" in states
    assert [a.status_code for a in answers] == [200] * 8
    assert all(a.text.endswith("data: [DONE]\n\n") for a in answers)


def test_a_second_signal_ends_at_once(program: Callable[..., tuple[subprocess.Popen[bytes], str]]) -> None:
    p, url = program("--drain", "1000")
    s = httpx.stream("POST", url + "/completion", json={**ENDLESS, "stream": True, "n_predict": 1900}, timeout=HANG_S)
    with s as answer:
        lines = answer.iter_lines()
        assert next(lines)
        p.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        p.send_signal(signal.SIGTERM)
        with suppress(httpx.TransportError):  # the connection has ended before the error was read
            assert '"unavailable_error"' in "".join(lines)
    assert p.wait(HANG_S) == 0


def test_a_unix_socket(program: Callable[..., tuple[subprocess.Popen[bytes], str]], tmp_path: Path) -> None:
    path = tmp_path / "duo.sock"
    p, where = program("--host", str(path))
    assert where == f"unix:{path}" and path.stat().st_mode & 0o777 == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://x", timeout=HANG_S) as client:
        assert client.get("/health").json() == {"status": "ok"}
    p.send_signal(signal.SIGTERM)
    assert p.wait(HANG_S) == 0 and not path.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-m", "/nowhere.gguf"], "nowhere.gguf"),
        (["--host", "0.0.0.0"], "other machines"),
        (["--temp", "x"], "temperature"),
        (["-np", "99"], "n_parallel"),
        (["--chat-template", "nonsense"], "unknown chat template"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    args: list[str], words: str, run: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = run("serve", "--port", "0", *args)
    assert code == 1 and out == ""
    assert words in err.splitlines()[-1] and "Traceback" not in err


def test_while_it_loads() -> None:
    from duo import Duo
    from duo.server.service import Service
    from duo.server.serving import Serving

    settings = Settings.of({"port": 0}, "demo")
    found = listeners(serve_options({"port": 0}))
    may_load, loaded = threading.Event(), threading.Event()

    def load() -> Duo:
        assert may_load.wait(HANG_S)
        return Duo(n_ctx=256)

    serving = Serving(Service(settings), found, load, drain_s=1, ready=lambda _d: loaded.set())
    thread = threading.Thread(target=serving.run)
    thread.start()
    url = found[0].url("http")
    for path in ("/health", "/v1/models", "/slots", "/props"):
        answer = httpx.get(url + path, timeout=HANG_S)
        assert answer.status_code == 503
        assert answer.json()["error"] == {"code": 503, "message": "Loading model", "type": "unavailable_error"}
    assert httpx.post(url + "/completion", json={"prompt": "a"}, timeout=HANG_S).status_code == 503
    assert httpx.get(url + "/livez", timeout=HANG_S).status_code == 200
    may_load.set()
    assert loaded.wait(HANG_S)
    assert httpx.get(url + "/health", timeout=HANG_S).status_code == 200
    serving.end()
    thread.join(HANG_S)
    assert not thread.is_alive()
