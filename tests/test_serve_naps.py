"""--sleep-idle-seconds: the models are freed while nobody asks, and come back for the next request."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from served import GREEDY, PROMPT, Server, served
from waits import wait_until

from duo import Duo, DuoError
from duo.server.lifecycle import Serving
from duo.server.naps import Naps
from duo.server.service import Service, Stage
from duo.server.settings import ServerSettings

BODY = {"prompt": PROMPT, **GREEDY}
QUIET = ("/health", "/props", "/v1/models", "/models", "/slots", "/metrics", "/livez")
# Requests that need no models to be answered.
MISTAKES = (
    ("GET", "/robots.txt", b"", 404), ("POST", "/nothing", b"{}", 404), ("GET", "/completion", b"", 405),
    ("GET", "/tools", b"", 501), ("GET", "/health/", b"", 307), ("POST", "/completion", b"no JSON", 400),
    ("POST", "/v1/embeddings", b'{"input": "a"}', 501), ("POST", "/lora-adapters", b"{}", 400),
    ("POST", "/slots/0?action=save", b"no JSON", 400),
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served({"sleep_idle_seconds": 1, "slot_save_path": str(tmp_path_factory.mktemp("slots"))}) as s:
        yield s


def wait_for_sleep(server: Server) -> None:
    until = time.monotonic() + HANG_S
    while not server.service.is_asleep:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_it_sleeps_answers_quiet_questions_and_wakes(server: Server) -> None:
    first = server.post("/completion", BODY).json()["content"]
    loaded = server.duo
    before = {path: server.get(path) for path in QUIET}
    wait_for_sleep(server)
    with pytest.raises(DuoError, match="closed"):
        loaded.generate(PROMPT)
    for path, answer in before.items():
        now = server.get(path)
        assert now.status_code == answer.status_code == 200
        if path not in ("/metrics", "/props"):
            assert now.json() == answer.json()
    assert server.get("/props").json() == {**before["/props"].json(), "is_sleeping": True}
    assert "duo_ready 1.0" in server.get("/metrics").text
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"User-Agent": "Mozilla/5.0"}):  # a page's picture
        assert server.get("/lora-adapters", headers=headers).status_code == 403
    for method, path, data, status in MISTAKES:
        answer = httpx.request(method, server.url + path, content=data, timeout=HANG_S)
        assert answer.status_code == status, (method, path)
    assert server.service.is_asleep  # nothing of that woke it
    assert server.post("/completion", BODY).json()["content"] == first
    assert not server.service.is_asleep and server.duo is not loaded


def test_mistakes_do_not_keep_it_awake(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    naps = server.service.naps
    assert isinstance(naps, Naps)
    monkeypatch.setattr(naps, "_last", time.monotonic() + HANG_S)  # so it stays awake meanwhile
    last = naps._last
    server.post("/tokenize", {"content": "x"})
    wait_until(lambda: naps._last < last)  # a request ends a little after its answer
    last = naps._last = last + HANG_S
    for method, path, data, _ in MISTAKES:
        httpx.request(method, server.url + path, content=data, timeout=HANG_S)
    assert naps._last == last


def test_what_used_the_models_and_failed_keeps_it_awake(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    naps = server.service.naps
    assert isinstance(naps, Naps)
    for path, body in (("/completion", {"prompt": "x " * 5000}), ("/lora-adapters", [{"id": 5, "scale": 1}])):
        monkeypatch.setattr(naps, "_last", last := time.monotonic() + 2 * HANG_S)
        assert server.post(path, body).status_code == 400
        wait_until(lambda: naps._last < last, path)


@pytest.mark.parametrize("fault", ["lora_scales", "close"])
def test_a_fault_while_it_falls_asleep(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty:
        @property
        def lora_scales(self) -> list[float]:
            self._fails("lora_scales")
            return [0.5]

        def close(self) -> None:
            self._fails("close")

        def _fails(self, what: str) -> None:
            if what == fault:
                raise DuoError("the trace cannot be written")

    service = Service(ServerSettings.of({}, "demo"))
    service._duo, service.stage = Faulty(), Stage.READY  # type: ignore[assignment]
    naps = Naps(service, 0, None, lambda _: {})  # type: ignore[arg-type]
    if fault == "lora_scales":
        with pytest.raises(DuoError, match="the trace"):
            asyncio.run(naps._fall_asleep())
        assert service.is_ready and caplog.messages == []
    else:
        asyncio.run(naps._fall_asleep())
        assert service.is_asleep and naps._lora_scales == [0.5]
        assert "their memory may not be free: the trace cannot be written" in caplog.text


def test_models_that_cannot_be_freed_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    async def fails(_naps: Naps) -> None:
        tried.append(1)
        raise DuoError("the trace cannot be written")

    async def until_tried_again() -> None:
        naps = Naps(Service(ServerSettings.of({}, "demo")), 0, None, None)
        watching = asyncio.create_task(naps.watch())
        while len(tried) < 2 and not watching.done():
            await asyncio.sleep(0.01)
        watching.cancel()

    monkeypatch.setattr(Naps, "_is_idle", True)
    monkeypatch.setattr(Naps, "_fall_asleep", fails)
    asyncio.run(asyncio.wait_for(until_tried_again(), HANG_S))
    assert len(tried) == 2


def test_many_that_wake_it_at_once_are_all_answered(server: Server) -> None:
    want = server.post("/completion", BODY).json()["content"]
    wait_for_sleep(server)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(server.post("/completion", BODY).json()["content"]))
               for _ in range(6)]  # fmt: skip
    for t in threads:
        t.start()
    for t in threads:
        t.join(HANG_S)
    assert found == [want] * 6


def test_a_long_text_keeps_it_awake(server: Server) -> None:
    loaded = server.post("/tokenize", {"content": "x"}).status_code == 200 and server.duo
    with served({"sleep_idle_seconds": 1}, delay=(150_000, 1)) as slow:
        duo = slow.duo
        body = {"prompt": PROMPT, "n_predict": 12, "ignore_eos": True, "mode": "plain"}
        assert slow.post("/completion", body).status_code == 200
        assert slow.duo is duo  # it took more than a second, and nobody slept
    assert loaded


def test_a_failed_load_is_told_and_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    want = server.post("/completion", BODY).json()["content"]
    wait_for_sleep(server)
    naps = server.service.naps
    assert naps is not None
    load = naps._load

    async def fails() -> None:
        raise DuoError("the file has gone")

    monkeypatch.setattr(naps, "_load", fails)
    answer = server.post("/completion", BODY)
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the models could not be loaded again: the file has gone"
    monkeypatch.setattr(naps, "_load", load)
    assert server.post("/completion", BODY).json()["content"] == want


def test_models_that_cannot_be_used_are_freed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapters have changed while it slept."""
    wait_for_sleep(server)
    naps = server.service.naps
    assert isinstance(naps, Naps)
    n_closed = []

    class Loaded:
        def __setattr__(self, *_: object) -> None:
            raise DuoError("there is no adapter")

        def close(self) -> None:
            n_closed.append(1)

    async def loads() -> Any:
        return Loaded()

    monkeypatch.setattr(naps, "_load", loads)
    monkeypatch.setattr(naps, "_lora_scales", [1.0])
    assert "there is no adapter" in server.post("/completion", BODY).json()["error"]["message"]
    assert n_closed == [1]


def test_a_long_load_is_no_idle_time() -> None:
    asked = {"port": 0}
    service = Service(ServerSettings.of(asked, "demo"))

    async def begin() -> None:
        serving = Serving(service, [], lambda: Duo(n_ctx=64), drain_s=1)
        service.naps = naps = Naps(service, 60, serving._loaded, lambda _: {})
        naps._last -= 3600  # the server began an hour ago
        await serving._begin()
        assert service.is_ready and not naps._is_idle

    asyncio.run(begin())
    service.close()


def test_it_ends_while_it_sleeps() -> None:
    with served({"sleep_idle_seconds": 1}) as s:
        wait_for_sleep(s)
