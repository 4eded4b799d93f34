"""Places of a server: a full queue, who waits, who goes, and what is free again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from conftest import HANG_S
from served import ENDLESS, Server, narrow, raw, request_for
from waits import wait_until

from duo.generation.stream_async import AsyncStream

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with narrow() as s:
        yield s


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Server) -> Iterator[None]:
    yield
    server.wait_until_idle()


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


def test_a_fault_in_the_figures_of_a_text_keeps_no_place(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_text: object) -> None:
        raise RuntimeError("a figure is wrong")

    monkeypatch.setattr(server.service.metrics, "ended", broken)
    for stream in (False, True):
        answer = server.post("/completion", {**ENDLESS, "n_predict": 4, "stream": stream})
        assert answer.status_code == 200 and answer.text.rstrip().endswith("}")
    assert caplog.text.count("the figures of a text could not be recorded") == 2
    assert server.service.admission.n_inside == 0


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


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_whose_time_is_over_ends_behind_a_line(server: Server, stream: bool) -> None:
    asked = {**ENDLESS, "t_max_predict_ms": 1, "grammar": 'root ::= ("a\\n")+'}
    last = server.events("/completion", asked)[-1][1] if stream else server.post("/completion", asked).json()
    assert last["stop_type"] == "limit" and 0 < last["tokens_predicted"] < 1500


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_ends_at_a_line_with_less_indentation(server: Server, stream: bool) -> None:
    asked = {"prompt": "a", "n_predict": 64, "n_indent": 4, "temperature": 0,
             "grammar": r'root ::= "x:\n    a\n \t   b\n  c\n    d\n"'}  # fmt: skip
    if stream:
        events = [data for _, data in server.events("/completion", asked)]
        last, text = events[-1], "".join(e["content"] for e in events)
    else:
        last = server.post("/completion", asked).json()
        text = last["content"]
    assert (text, last["stop_type"]) == ("x:\n    a\n \t   b\n  ", "limit")
    assert server.post("/completion", {**asked, "n_indent": 2}).json()["content"].endswith("    d\n")
    assert server.post("/completion", {**asked, "n_indent": -1}).status_code == 400
