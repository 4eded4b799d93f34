"""nginx, HAProxy, LiteLLM and sglang-router as deploy/ starts them, in front of two servers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from deployed import Balancer, haproxy, litellm, nginx, program_of, sglang, states_of_haproxy
from served import TALE, Server, parsed, raw, request_for, served
from sizes import mostly_daily
from test_serve_process import start
from waits import wait_until

pytestmark = pytest.mark.full

ASKED: dict[str, Any] = {"model": "duo", "messages": TALE, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
LONG = {**ASKED, "max_tokens": 1500}  # such a text is left before it ends
# A balancer with threads learns of an end late. So three texts, of which two come through it, may meet at one replica.
N_PLACES = 3
SLOW = {"n_parallel": N_PLACES, "delay": (20_000, 1)}  # µs of a pass: a text lasts long enough to see it being written
SERVER = {"queue": 0, "alias": "duo", "drain": 60.0}
BALANCERS = {"nginx": nginx, "haproxy": haproxy, "litellm": litellm, "sglang": sglang}
PLAIN = ("nginx", "haproxy")  # they pass on what they get
FEW = [pytest.param("nginx", marks=pytest.mark.daily), "haproxy"]
FEW.append(pytest.param("litellm", marks=[pytest.mark.slow, pytest.mark.daily]))  # 20 s to start
FEW.append(pytest.param("sglang", marks=pytest.mark.daily))


@contextmanager
def replicas(n: int = 2) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(served(SERVER, **SLOW)) for _ in range(n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The balancers' files; one balancer runs at a time."""
    return tmp_path_factory.mktemp("balancer")


@pytest.fixture(scope="module", params=FEW)
def both(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Any, ...]]:
    """A balancer and the two replicas behind it."""
    program_of(request.param)  # before anything is started
    with replicas() as servers, BALANCERS[request.param](folder, [s.url for s in servers]) as balancer:
        yield request.param, balancer, servers


def words(stream: str) -> str:
    chunks = [data for _, data in parsed(stream) if data != "[DONE]" and data["choices"]]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)


def test_texts_and_streams(both: tuple[str, Balancer, list[Server]]) -> None:
    name, balancer, servers = both
    right = servers[0].post("/v1/chat/completions", ASKED).json()["choices"][0]["message"]["content"]
    answer = balancer.post(ASKED, **{"X-Request-Id": "tale-1"})
    assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"] == right
    with balancer.stream(ASKED) as stream:
        said = "".join(stream.iter_text())
    assert stream.status_code == 200 and words(said) == right and said.rstrip().endswith("data: [DONE]")
    if name in PLAIN:
        assert answer.headers["x-request-id"] == "tale-1"
        assert balancer.post(ASKED).headers["x-request-id"]
        assert balancer.get("/metrics").status_code == 404 and balancer.get("/v1/models").status_code == 200


def test_a_stream_is_passed_on_at_once(both: tuple[str, Balancer, list[Server]]) -> None:
    """Its first words arrive while the text is still being written."""
    _, balancer, servers = both
    with balancer.stream(LONG) as stream:
        lines = stream.iter_lines()
        while '"content":"' not in (line := next(lines)).replace('": "', '":"'):
            assert line != "data: [DONE]"
        assert sum(len(s.service.running) for s in servers) == 1
        assert sum(t.n_tokens for s in servers for t in s.service.running) < LONG["max_tokens"]
    for s in servers:
        s.wait_until_idle()


def test_both_replicas_write(both: tuple[str, Balancer, list[Server]]) -> None:
    """The least busy one gets the next request."""
    _, balancer, servers = both
    with balancer.stream(LONG) as one, balancer.stream(LONG) as other:
        lines = [answer.iter_lines() for answer in (one, other)]  # one that is dropped closes its connection
        assert [answer.status_code for answer in (one, other)] == [200, 200] and all(next(x) for x in lines)
        # The first line may come a moment before the text begins.
        wait_until(lambda: sum(len(s.service.running) for s in servers) == 2)
        seen = [len(s.service.running) for s in servers]
    if both[0] in PLAIN:  # the others may choose the same one twice
        assert seen == [1, 1]
    for s in servers:
        s.wait_until_idle()


def test_a_full_queue_refuses(both: tuple[str, Balancer, list[Server]]) -> None:
    name, balancer, servers = both
    with ExitStack() as stack:
        for s in servers:
            for _ in range(N_PLACES):
                stack.enter_context(raw(s, request_for("/v1/chat/completions", {**LONG, "stream": True})))
            s.wait_for_texts(N_PLACES)
        answer = balancer.post(ASKED)
        assert answer.status_code == 429
        assert "queue is full" in answer.text
        if name != "litellm":
            assert int(answer.headers["retry-after"]) > 0
    for s in servers:
        s.wait_until_idle()


@pytest.mark.daily
def test_sglang_router_chooses_by_the_beginning_of_the_prompt(tmp_path: Path) -> None:
    """Texts that begin alike go to one replica, whose cache has the beginning."""
    program_of("sglang")
    tale = "The king of the northern mountains said to his daughter that she should never go into the forest. " * 3
    cached = []
    with replicas() as servers, sglang(tmp_path, [s.url for s in servers]) as balancer:
        for i in range(6):
            answer = balancer.post({**ASKED, "messages": [{"role": "user", "content": f"{tale}{i}"}]}).json()
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] < 20 and min(cached[1:]) > 50, cached


class Load:
    """Requests one after the other in some threads, until it is told to end."""

    def __init__(self, balancer: Balancer, n: int, body: Any) -> None:
        self.answers: list[httpx.Response] = []
        self._balancer, self._body, self._goes_on = balancer, body, True
        self._threads = [threading.Thread(target=self._run) for _ in range(n)]
        for t in self._threads:
            t.start()

    def _run(self) -> None:
        while self._goes_on:
            self.answers.append(self._balancer.post(self._body))

    def more(self, n: int) -> None:
        """Until so many further answers have come."""
        n += len(self.answers)
        wait_until(lambda: len(self.answers) >= n)

    def end(self) -> list[httpx.Response]:
        self._goes_on = False
        for t in self._threads:
            t.join(HANG_S)
        return self.answers


# The last test with these replicas. sglang-router goes on asking a replica that drains.
@pytest.mark.daily  # tests/test_serve_process.py tells what /health says then
@pytest.mark.parametrize("both", FEW[:3], indirect=True)
def test_a_replica_that_drains_gets_no_requests(both: tuple[str, Balancer, list[Server]], folder: Path) -> None:
    """None is refused, and what it writes is written to the end."""
    name, balancer, (first, _) = both
    wait_until(lambda: balancer.post(ASKED).status_code == 200)  # LiteLLM spares replicas that were full a while ago
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(first.post, "/v1/chat/completions", {**LONG, "max_tokens": 800})
        first.wait_for_texts(1)
        load = Load(balancer, 2, {**ASKED, "stream": True})
        load.more(4)
        first.serving.end()
        if name == "haproxy":
            wait_until(lambda: states_of_haproxy(folder) == {"duo1": "DOWN", "duo2": "UP"})
            assert not last.done() and first.get("/livez").status_code == 200  # it still writes
            load.more(2)
            refused = first.n_refused("draining")
            load.more(6)
            assert not last.done()
            assert first.n_refused("draining") == refused  # nobody asks it any more
        load.more(6)
        answers = load.end()
        assert last.result().json()["usage"]["completion_tokens"] == 800
    assert {a.status_code for a in answers} == {200}
    assert all(a.text.rstrip().endswith("data: [DONE]") for a in answers)
    assert len({words(a.text) for a in answers}) == 1


# To start LiteLLM a second time takes half a minute.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("nginx", marks=pytest.mark.daily),
        "haproxy",
        pytest.param("litellm", marks=pytest.mark.proof),
        FEW[3],
    ],
)
def test_a_replica_that_is_killed(name: str, tmp_path: Path) -> None:
    """Texts that are sent as a whole are written by the other replica."""
    program_of(name)
    # sglang-router passes a refusal (429) on, so there one replica has room for all.
    p, url = start("-np", "3" if name == "sglang" else "2", "--queue", "0", "--alias", "duo")
    try:
        with served(SERVER, **{**SLOW, "n_parallel": 4}) as other, BALANCERS[name](tmp_path, [url, other.url]) as b:
            load = Load(b, 3, {**ASKED, "max_tokens": 40})
            load.more(6)
            p.send_signal(signal.SIGKILL)
            load.more(8)
            if name == "sglang":  # may try the dead replica each time (500), but it learns that it is dead
                wait_until(lambda: [a.status_code for a in load.answers[-6:]] == 6 * [200])
            answers = load.end()
            written = [a for a in answers if a.status_code == 200]
            if name == "sglang":
                assert {a.status_code for a in answers} <= {200, 500}
            else:
                assert written == answers, [a.text for a in answers if a.status_code != 200]
            assert len({a.json()["choices"][0]["message"]["content"] for a in written}) == 1
    finally:
        p.kill()
        p.communicate(timeout=HANG_S)


@pytest.mark.parametrize("name", mostly_daily(PLAIN, PLAIN[1:]))
def test_when_no_replica_is_there(name: str, tmp_path: Path) -> None:
    program_of(name)
    with replicas() as (first, second), BALANCERS[name](tmp_path, [first.url, second.url]) as balancer:
        for s in (first, second):
            s.serving.end()
            s.serving.end()
        wait_until(lambda: balancer.post(ASKED).status_code == 503)
        answer = balancer.post(ASKED)
        assert answer.status_code == 503
        if name == "nginx":
            assert answer.headers["retry-after"] and answer.json()["error"]["type"] == "unavailable_error"
