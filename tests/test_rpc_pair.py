"""A draft, or a target, on a real `duo rpc-server`: the text is the target's, whatever happens to the server."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import EXACT, HANG_S, lines_but_the_guards
from hosts import until_it_helps
from ports import free_port
from rpc_servers import Server, needs_rpc, not_a_server, run_duo, serving
from sizes import mostly_daily, size

from duo import Duo, DuoError
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.remote.client import child
from duo.remote.client import draft as client_draft
from duo.remote.client.child import HostChild

pytestmark = needs_rpc

PROMPT = "Once upon a time there was a little tin soldier who"
N = 60
TEXTS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.8, "seed": 5}]


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[list[str]]:
    """The texts of the target alone, in the order of TEXTS."""
    with Duo(n_ctx=512, **EXACT) as d:
        yield [d.generate(PROMPT, max_tokens=N, mode="plain", **o).text for o in TEXTS]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1") as s:
        yield s


def duo_with(endpoint: str, **options: Any) -> Duo:
    return SwitchedDuo(n_ctx=512, rpc=endpoint, always=True, **EXACT, **options)


def child_of(d: Duo) -> HostChild:
    assert d._pair.child is not None
    return d._pair.child


def wait_for(what: Callable[[], object]) -> None:
    limit = time.monotonic() + HANG_S
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.02)


def text_with(d: Duo, after: int, event: Callable[[], None], n: int = N, **options: Any) -> Any:
    """Generates; `event` happens after so many chunks."""
    stream = d.stream(PROMPT, max_tokens=n, **options)
    for i, _ in enumerate(stream):
        if i == after:
            event()
    return stream.result


def test_the_text_is_the_targets_and_the_draft_on_rpc_helps(server: Server, undisturbed: list[str]) -> None:
    with duo_with(server.endpoint) as d:
        pid = child_of(d).pid
        for options, text in zip(TEXTS, undisturbed, strict=True):
            r = d.generate(PROMPT, max_tokens=N, **options)
            assert r.text == text
            assert r.warning == "" and "network_sent_bytes" not in r.timings  # which is libggml's here
        until_it_helps(d)
    assert pid is not None and child_of(d).pid is None


@pytest.mark.daily
def test_a_server_killed_in_mid_text_is_a_warning_and_its_draft_comes_back(undisturbed: list[str]) -> None:
    with serving("-t", "1", port=free_port()) as s, duo_with(s.endpoint) as d:
        until_it_helps(d)
        r = text_with(d, 20, s.kill, **TEXTS[1])
        assert r.text == undisturbed[1] and r.finish_reason == "length"
        assert d.generate(PROMPT, max_tokens=N, **TEXTS[0]).text == undisturbed[0]
        wait_for(lambda: child_of(d).last_reason)
        assert f"the RPC server {s.endpoint}" in child_of(d).last_reason
        with serving("-t", "1", port=s.port):
            until_it_helps(d)


@pytest.mark.daily
def test_a_frozen_server_does_not_stop_the_text_and_helps_again_when_it_thaws(
    undisturbed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving("-t", "1") as s, duo_with(s.endpoint, delay=(40_000, 1)) as d:
        until_it_helps(d)
        monkeypatch.setattr(client_draft, "SILENT_S", 0.2)
        r = text_with(d, 20, lambda: s.signal(signal.SIGSTOP), temperature=0)
        assert r.text == undisturbed[0]
        assert r.warning == f"the RPC server {s.endpoint} has made no guess for 0.2 s"
        assert d.generate(PROMPT, max_tokens=N, temperature=0).text == undisturbed[0]
        s.signal(signal.SIGCONT)
        until_it_helps(d)
        assert child_of(d).n_started == 1


@pytest.mark.daily
def test_a_server_that_is_not_there_is_a_warning_and_joins_when_it_comes(undisturbed: list[str]) -> None:
    port = free_port()
    with duo_with(f"127.0.0.1:{port}") as d:
        r = d.generate(PROMPT, max_tokens=N, temperature=0)
        assert r.text == undisturbed[0]
        assert f"the RPC server 127.0.0.1:{port} cannot be reached (connection refused)" in r.warning
        with serving("-t", "1", port=port):
            until_it_helps(d)


@pytest.mark.parametrize("answer", mostly_daily([None, b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10], [None]))
def test_a_peer_that_is_not_an_rpc_server_is_a_warning(answer: bytes | None, undisturbed: list[str]) -> None:
    with not_a_server(answer) as endpoint, duo_with(endpoint) as d:
        r = d.generate(PROMPT, max_tokens=N, temperature=0)
        assert r.text == undisturbed[0] and f"the RPC server {endpoint}" in r.warning


def test_a_draft_that_is_required_is_an_error_without_its_server() -> None:
    with pytest.raises(DuoError, match="cannot be reached"):
        duo_with(f"127.0.0.1:{free_port()}", require_draft=True)


def test_a_draft_that_cannot_be_loaded_is_an_error_at_the_start(server: Server) -> None:
    with pytest.raises(DuoError, match="unknown device RPC7"):
        for _ in range(3):  # a server that does not answer in time, for once, is a warning only
            duo_with(server.endpoint, device_draft="RPC7").close()
    with pytest.raises(DuoError, match=r"nosuch\.gguf"):
        Duo(demo_pair()[0], "nosuch.gguf", rpc=server.endpoint)


def test_a_target_on_rpc_writes_with_the_draft_here_and_goes_on_after_a_loss(undisturbed: list[str]) -> None:
    options = {"cpu_kernels": "stock", "strict": True}
    how = {"device": "RPC0", "host_patience": float(HANG_S), "always": True, **options}
    with serving("-t", "1", port=free_port()) as s, SwitchedDuo(n_ctx=512, rpc=s.endpoint, **how) as d:
        text = d.generate(PROMPT, max_tokens=40, temperature=0, mode="plain").text  # stock attention, as on any device
        again: list[Server] = []

        def restart() -> None:
            s.kill()
            again.append(Server("-t", "1", port=s.port))

        try:
            r = text_with(d, 20, restart, n=40, temperature=0)
            assert r.text == text and r.finish_reason == "length"
        finally:
            again[0].close()


@pytest.mark.daily
def test_a_target_on_rpc_that_stays_away_ends_the_text_with_what_was_written() -> None:
    with serving("-t", "1") as s, duo_with(s.endpoint, device="RPC0", host_patience=0.5) as d:
        whole = d.generate(PROMPT, max_tokens=N, temperature=0).text
        with pytest.raises(DuoError, match=rf"the RPC server {s.endpoint}") as caught:
            text_with(d, 20, s.kill, temperature=0)
        assert caught.value.result is not None
        assert caught.value.result.text and whole.startswith(caught.value.result.text)
        assert caught.value.result.finish_reason == "error"


@pytest.mark.daily
def test_a_draft_that_takes_long_to_load_is_waited_for_no_longer_than_some_seconds(
    server: Server, undisturbed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "START_OPTIONAL_S", 0.01)
    with duo_with(server.endpoint) as d:
        r = d.generate(PROMPT, max_tokens=N, temperature=0)
        assert r.text == undisturbed[0]
        assert r.warning == f"the RPC server {server.endpoint} is not ready after 0.01 s"
        until_it_helps(d)


@pytest.mark.daily
@pytest.mark.random
def test_a_target_too_large_for_its_devices_is_reported_in_one_sentence(server: Server) -> None:
    args = ("-m", demo_pair()[0], "-md", demo_pair()[1], "--rpc", server.endpoint, "-dev", "RPC0", "-ngl", "all")
    for _ in range(size(1, 20)):  # the child must not be aborted by its own threads when it ends
        done = run_duo(*map(str, args), "-c", "2000000000", "-p", PROMPT)
        assert (done.returncode, len(lines_but_the_guards(done.stderr.decode()))) == (1, 1)
        assert b"the target needs " in done.stderr and b" GB are free" in done.stderr, done.stderr


@pytest.mark.daily
def test_several_texts_at_once_on_rpc(server: Server, undisturbed: list[str]) -> None:
    with duo_with(server.endpoint, n_parallel=3) as d, ThreadPoolExecutor(3) as pool:
        until_it_helps(d)
        for found in pool.map(lambda _: [d.generate(PROMPT, max_tokens=N, **o).text for o in TEXTS], range(3)):
            assert found == undisturbed


@pytest.mark.daily
def test_the_program_says_where_the_draft_is(server: Server) -> None:
    done = run_duo("--rpc", server.endpoint, "-p", PROMPT, "-n", "20", "-c", "512")
    assert done.returncode == 0
    assert f"on the RPC server {server.endpoint}".encode() in done.stderr
