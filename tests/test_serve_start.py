"""How a server begins: who may come, addresses, certificates, the time while its models load."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from bert_models import bert
from conftest import HANG_S
from gguf_files import rewrite
from hosts import make_certificate
from served import all_of, raw, served
from waits import wait_until

from duo import Duo
from duo.errors import BadValueError
from duo.generation.recent_events import RecentEvents
from duo.models.demo import demo_pair
from duo.options.validate import serve_options
from duo.server import create_app
from duo.server.lifecycle import Serving
from duo.server.listening import check_tls, listeners, openness
from duo.server.settings import ServerSettings

ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "cache_prompt": False}


# ---- who may come


def test_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first-key\n\nsecond-key\nschlüssel\n", "utf-8")
    with served({"api_key_file": str(file), "api_key": "third-key", "api_prefix": "/llm", "metrics_compat": "llamacpp"},
                n_parallel=1) as s:  # fmt: skip
        for path in ("/v1/models", "/slots", "/metrics", "/props", "/nothing"):
            answer = s.get(path)
            assert answer.status_code == 401 and answer.json()["error"]["type"] == "authentication_error"
            assert s.get(path, headers={"X-Api-Key": "first-ke"}).status_code == 401
        assert s.get("/health").status_code == 200
        for key in (b"first-key", b"second-key", b"third-key", "schlüssel".encode()):
            assert s.get("/v1/models", headers={"Authorization": b"Bearer " + key}).status_code == 200
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

    client = TestClient(make_app(Service(ServerSettings.of({"cors_origins": origins, "api_key": "k"}, "demo"))))
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    answers = [client.options("/v1/models", headers=asked), client.get("/v1/models", headers={"Origin": origin})]
    assert answers[1].status_code == 401
    for answer in answers:
        assert (answer.headers.get("access-control-allow-origin") in (origin, "*")) is allowed


def test_another_app_mounts_the_routes(duo_pair: Duo) -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    with pytest.raises(BadValueError, match="port is an option of the server that runs this app"):
        create_app(duo_pair, port=80)
    with pytest.raises(BadValueError, match="models_dir is an option of `duo serve`"):
        create_app(duo_pair, models_dir="models")
    with pytest.raises(TypeError, match="unexpected keyword argument 'prot'"):
        create_app(duo_pair, prot=80)  # type: ignore[call-arg]
    app = FastAPI()
    app.mount("/llm", create_app(duo_pair, alias="tale"))
    app.mount("/with/key", create_app(duo_pair, api_key="k", api_prefix="/below"))
    here = TestClient(app, base_url="http://localhost")
    asked = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    answer = here.post("/llm/v1/completions", json=asked)
    assert answer.status_code == 200, answer.text
    text = duo_pair.generate("Once upon a time", max_tokens=8, temperature=0).text
    assert (answer.json()["choices"][0]["text"], answer.json()["model"]) == (text, "tale")
    assert here.get("/llm/health").status_code == here.get("/with/key/below/health").status_code == 200
    assert here.get("/llm/nothing").json()["error"]["code"] == 404
    assert here.get("/llm/").status_code == 404  # no trace was given, so there is no page
    keyed = "/with/key/below/v1/completions"
    assert here.post(keyed, json=asked).status_code == 401
    assert here.post(keyed, json=asked, headers={"x-api-key": "k"}).json()["choices"][0]["text"] == text
    foreign = TestClient(app, base_url="http://rebound.example")
    assert foreign.get("/llm/v1/models").status_code == 403


def test_a_mounted_app_has_the_page_if_it_gets_the_trace() -> None:
    from fastapi.testclient import TestClient

    trace = RecentEvents()
    with Duo(n_ctx=512, trace=trace) as d:
        here = TestClient(create_app(d, trace=trace), base_url="http://localhost")
        assert here.get("/").headers["content-type"].startswith("text/html")
        here.get("/duo/trace")
        here.post("/v1/completions", json={"prompt": "Once upon a time", "max_tokens": 8})
        assert here.get("/duo/trace").json()["events"]


def test_without_a_key_other_machines_are_worth_a_warning() -> None:
    def warning(**given: Any) -> str | None:
        return openness(serve_options(given), has_keys=bool(given.get("api_key")))

    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.9", "/tmp/x.sock", "unix:x", "a.sock"):
        assert warning(host=host) is None
    for host in ("0.0.0.0", "::", "192.168.1.2", "host.example", "127.0.0.1,0.0.0.0"):
        for given in ({}, {"ssl_cert_file": "c", "ssl_key_file": "k"}):  # a certificate asks nobody who they are
            said = warning(host=host, **given)
            assert said and f"--host {host.split(',')[-1]} without a key" in said and "give --api-key" in said
        assert warning(host=host, insecure=True) is warning(host=host, api_key="k") is None


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
    with pytest.raises(BadValueError, match=words):
        ServerSettings.of(given, "demo")
        o = serve_options(given)
        check_tls(o)
        listeners(o)


def test_names_are_in_llama_servers_order() -> None:
    assert ServerSettings.of({"alias": "tiny, fim,code,fim"}, "demo").names == ("code", "fim", "tiny")
    assert ServerSettings.of({}, "demo").names == ("demo",)


def test_tls(tmp_path: Path) -> None:
    authority = make_certificate(tmp_path, "authority")
    cert, key = make_certificate(tmp_path, "server", authority)
    with served({"ssl_cert_file": str(cert), "ssl_key_file": str(key)}, n_parallel=1) as s:
        context = ssl.create_default_context(cafile=authority[0])
        assert s.url.startswith("https://")
        assert httpx.get(s.url + "/health", verify=context, timeout=HANG_S).json() == {"status": "ok"}


# ---- while it loads


def test_while_it_loads() -> None:
    from duo import Duo
    from duo.server.lifecycle import Serving
    from duo.server.service import Service

    settings = ServerSettings.of({"port": 0}, "demo")
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
        assert int(answer.headers["retry-after"]) > 0
    assert httpx.post(url + "/completion", json={"prompt": "a"}, timeout=HANG_S).status_code == 503
    assert httpx.get(url + "/livez", timeout=HANG_S).status_code == 200
    may_load.set()
    assert loaded.wait(HANG_S)
    assert httpx.get(url + "/health", timeout=HANG_S).status_code == 200
    serving.end()
    thread.join(HANG_S)
    assert not thread.is_alive()


@pytest.mark.full
def test_a_server_may_end_while_it_loads() -> None:
    from duo import Duo
    from duo.server.lifecycle import Serving
    from duo.server.service import Service

    may_load = threading.Event()
    made: list[Duo] = []

    def load() -> Duo:
        assert may_load.wait(HANG_S)
        made.append(Duo(n_ctx=256))
        return made[0]

    asked = {"port": 0}
    serving = Serving(Service(ServerSettings.of(asked, "demo")), listeners(serve_options(asked)), load, drain_s=1000)
    thread = threading.Thread(target=serving.run)
    thread.start()
    wait_until(lambda: serving.is_listening)
    serving.end()
    thread.join(HANG_S)
    assert not thread.is_alive()
    may_load.set()
    wait_until(lambda: made and made[0].session.closed)  # what came too late is freed


def test_tokens_do_not_wait_for_acknowledgements() -> None:
    """asyncio sets TCP_NODELAY only on sockets that say that they are TCP."""

    async def accepted(found: socket.socket) -> int:
        option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            s = writer.get_extra_info("socket")
            option.set_result(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(connected, sock=found):
            _, writer = await asyncio.open_connection(*found.getsockname()[:2])
            try:
                return await asyncio.wait_for(option, HANG_S)
            finally:
                writer.close()

    (listener,) = listeners(serve_options({"port": 0}))
    assert asyncio.run(accepted(listener.socket)) != 0


@pytest.mark.parametrize("own_page", [False, True])
def test_no_path_leads_around_the_key(tmp_path: Path, own_page: bool) -> None:
    (tmp_path / "index.html").write_text("mine")
    given = {"api_key": "secret", "path": str(tmp_path)} if own_page else {"api_key": "secret"}
    with served(given, n_ctx=256, n_parallel=1) as s:
        for path in (
            "/health/../props", "/ui/../props", "/ui/%2e%2e/props", "/ui/./../slots", "//props", "/props/",
            "/props?/health", "/ui/page.js/../../props", "/index.html/../props", "/v1/models", "/nothing",
        ):  # fmt: skip
            with raw(s, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()) as client:
                answer = all_of(client)
            assert answer.split(b" ", 2)[1] in (b"400", b"401"), (path, answer)
            assert b"total_slots" not in answer and b"is_processing" not in answer
        for path in ("/", "/index.html")[: 2 if own_page else 1]:  # a browser sends no key
            assert httpx.get(s.url + path).status_code == 200
        assert httpx.get(s.url + "/props", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert httpx.get(s.url + "/health").status_code == 200


@pytest.mark.parametrize("writes", [True, False])
def test_a_model_without_a_chat_template_is_served(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """A base model, and one for vectors."""

    class Once(Serving):
        def run(self) -> None:
            with self._load() as d:
                self._ready(d)
            for listener in self._listeners:
                listener.close()

    monkeypatch.setattr("duo.server.lifecycle.Serving", Once)
    file = tmp_path / "model.gguf"
    if writes:
        rewrite(demo_pair()[0], file, drop=["tokenizer.chat_template"])
    else:
        bert(file)
    code, out, err = run("serve", "-m", file, "--port", 0, *([] if writes else ["--embedding"]))
    assert code == 0 and "duo serve: model on http://127.0.0.1:" in out, err
