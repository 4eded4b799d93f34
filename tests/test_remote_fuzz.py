"""Hostile peers at both ends: nothing crashes, hangs or grows, and whoever behaves notices nothing.

DUO_FUZZ_MESSAGES=100000 python -m pytest tests/test_remote_fuzz.py    the long run
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest
from conftest import EXACT, HANG_S
from hostile import LITTLE, N_LITTLE, PATH, Attacker, HostileHost, as_it_is, good_begin, raw
from hosts import KERNELS, PROMPT, HostProcess, host, remote, rss_mb, until_it_helps
from proxies import proxy
from sizes import mostly_daily

from duo import Duo, DuoError, _core
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.remote.client import client
from duo.remote.host.service import N_UNBEGUN_MAX
from duo.remote.host.text import VerifyText
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec_begin import get_begin

N_PAUSES = 8  # messages, more than the target takes while it waits
N_MESSAGES = int(os.environ.get("DUO_FUZZ_MESSAGES", "120"))  # at each end, and for each kind of host
# Of a process, arenas and caches: 2 to 5 MB over few messages. There a leak shows if it is 0.2 MB for each message; the
# long run shows one of a kilobyte.
N_GROWTH_MB = 20 if N_MESSAGES < 1000 else 60
N_VOCAB = 4096  # of the demo pair
TEXT: dict[str, Any] = {"temperature": 0, "max_tokens": 60}

pytestmark = pytest.mark.timeout(600 + N_MESSAGES // 10)


@pytest.fixture(scope="module")
def expected() -> str:
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        return d.generate(PROMPT, **TEXT).text


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["verify"]))
def test_a_hostile_client_harms_neither_the_host_nor_its_neighbour(role: str, expected: str) -> None:
    args = ("-td", "1") if role == "draft" else ("-t", "1", "-c", "1024", *KERNELS)
    with host(role, "-np", "3", *args) as h, remote(role, h) as good:
        Attacker(h, 0).run(N_MESSAGES // 10)
        before = rss_mb(h.process.pid)
        # Streams that are opened and left lying, and one that is begun and never read.
        lazy = grpc.insecure_channel(h.address, [("grpc.use_local_subchannel_pool", 1)])
        open_stream = lazy.stream_stream(PATH + good.network.settings.role.capitalize(), as_it_is, as_it_is)  # type: ignore[union-attr]
        stop = threading.Event()

        def silent() -> Iterator[bytes]:
            stop.wait(HANG_S)
            yield from ()

        calls = [open_stream(silent()) for _ in range(4)]
        with ThreadPoolExecutor(2) as pool:
            attackers = [pool.submit(Attacker(h, seed).run, N_MESSAGES // 2) for seed in (1, 2)]
            while not all(a.done() for a in attackers):
                r = good.generate(PROMPT, **TEXT)
                assert r.text == expected
                busy = "cannot take another text" in r.warning  # the others may have all seats for a moment
                assert r.warning == "" or busy, r.warning
            for a in attackers:
                a.result(HANG_S)
        stop.set()
        for c in calls:
            c.cancel()
        lazy.close()
        assert h.process.poll() is None
        assert rss_mb(h.process.pid) - before < N_GROWTH_MB
        assert until_it_helps(good, **TEXT).text == expected  # it has its seat again
        assert h.stop() == 0


@pytest.mark.parametrize(
    ("how", "n_pauses"),
    [
        pytest.param("goes", N_PAUSES, marks=pytest.mark.daily),
        pytest.param("cancels", 0, marks=pytest.mark.daily),
        pytest.param("cancels", N_PAUSES, marks=pytest.mark.proof),  # behind them nobody reads it, for IDLE_S
        ("stays", N_PAUSES),
    ],
)
def test_a_client_that_does_not_read_keeps_no_seat_and_stops_no_host(how: str, n_pauses: int) -> None:
    with host("verify", "-t", "1", "-c", "1024", *KERNELS) as h, proxy(h.address) as between:
        channel, instance, open_stream = raw(h, "Verify", between.address, LITTLE)
        full = between.n_bytes + N_LITTLE // 10 * 9  # messages are not cut
        begin = good_begin(instance, bytes(16))
        begin.n_predict, begin.n_logprobs = 1000, 100
        stop, sent = threading.Event(), threading.Event()
        pauses = wire.ToVerify(nodes=[wire.Node(kind=1, id=1, parent=1, token=-1)] * 1024).SerializeToString()

        def messages() -> Iterator[bytes]:
            yield wire.ToVerify(begin=begin).SerializeToString()
            between.wait_until_still(full)  # the target waits for somebody who takes its text
            for _ in range(n_pauses):
                yield pauses
            sent.set()
            if how == "cancels":
                yield wire.ToVerify(cancel=True).SerializeToString()
            stop.wait(HANG_S)

        call = open_stream(messages())
        assert sent.wait(HANG_S)
        between.wait_until_still(full + max(0, n_pauses - 1) * len(pauses))
        if how == "goes":
            call.cancel()
        if how != "stays":
            with remote("verify", h) as good:
                assert good.generate(PROMPT, **TEXT).finish_reason == "length"
        assert h.stop() == 0
        stop.set()
        channel.close()


def test_a_text_ends_while_the_target_waits_for_its_reader_and_the_giver_for_the_target() -> None:
    o = _core.ModelOptions()
    o.path, o.n_ctx, o.n_threads = str(demo_pair()[0]), 1024, 1
    served = _core.VerifyHost(_core.SharedModel(o, False, None))
    seat = served.seats[0]
    begin = get_begin(good_begin(bytes(16), bytes(16)), n_vocab=N_VOCAB, n_ctx=1024)
    begin.n_predict, begin.n_logprobs = 1000, 100
    pauses = wire.ToVerify(nodes=[wire.Node(kind=1, id=1, parent=1, token=-1)] * 1000)

    async def run() -> None:
        text = VerifyText(AsyncMock(), seat, N_VOCAB, 15.0)
        seat.begin(begin)
        while seat.take(20_000) == ([], []):
            pass
        while True:  # nobody takes chunks, so the target stops, and then takes no more nodes
            giving = asyncio.ensure_future(text._give(pauses))
            if not (await asyncio.wait({giving}, timeout=1.0))[0]:
                break
        threading.Thread(target=text.end, daemon=True).start()
        await asyncio.wait_for(giving, HANG_S)

    asyncio.run(run())
    served.close()


def test_a_draft_goes_on_beside_a_target_with_a_few_tokens_more(draft_host: HostProcess) -> None:
    channel, instance, open_stream = raw(draft_host, "Draft")
    begin = good_begin(instance, bytes(16))
    begin.prompt.append(N_VOCAB)
    orders = {"n_ahead": 4, "n_branch": 2, "n_want": 4, "branch_price": 1000}
    heard = threading.Semaphore(0)

    def messages() -> Iterator[bytes]:
        yield wire.ToDraft(begin=begin).SerializeToString()
        heard.acquire(timeout=HANG_S)
        yield wire.ToDraft(verdicts=[wire.Verdict(token=N_VOCAB + 60, **orders)]).SerializeToString()
        heard.acquire(timeout=HANG_S)
        yield wire.ToDraft(verdicts=[wire.Verdict(kind=1, token=-1, **orders)]).SerializeToString()

    n_named = 0  # such tokens, of the prompt and of the target
    for data in open_stream(messages(), timeout=HANG_S):
        for node in wire.FromDraft.FromString(data).nodes:
            if node.kind == wire.Node.NODE:
                assert node.named and node.token in (N_VOCAB, N_VOCAB + 60)
                n_named += 1
                heard.release()
    assert n_named == 2
    begin.prompt.append(N_VOCAB + 128)
    with pytest.raises(grpc.RpcError, match=f"a token of the prompt is {N_VOCAB + 128}"):
        list(open_stream(iter([wire.ToDraft(begin=begin).SerializeToString()]), timeout=HANG_S))
    channel.close()


def test_streams_that_begin_nothing_do_not_pile_up(draft_host: HostProcess) -> None:
    channel, _, open_stream = raw(draft_host, "Draft")
    stop = threading.Event()

    def silent() -> Iterator[bytes]:
        stop.wait(HANG_S)
        yield from ()

    calls = [open_stream(silent(), timeout=HANG_S) for _ in range(N_UNBEGUN_MAX)]
    for call in calls:
        call.initial_metadata()
    with pytest.raises(grpc.RpcError, match="from this address have not started a text"):
        list(open_stream(iter([wire.ToDraft().SerializeToString()]), timeout=HANG_S))
    stop.set()
    for call in calls:
        assert call.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError, match="the first message does not start a text"):
        list(open_stream(iter([wire.ToDraft().SerializeToString()]), timeout=HANG_S))
    channel.close()


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["draft"]))
def test_a_hostile_host_harms_no_client(role: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HOPELESS_S", 0.0)
    monkeypatch.setattr(client, "BACK_OFF_FIRST_S", 0.001)
    monkeypatch.setattr(client, "BACK_OFF_MOST_S", 0.01)
    evil = HostileHost(role, 7)
    try:
        options = {"n_ctx": 1024, "always": True} | (EXACT if role == "draft" else {"host_patience": 0.02})
        make = partial(SwitchedDuo, **{f"{role}_host": evil.address}, **options)
        before = 0.0
        d = make()
        n_texts = 0
        while evil.n < N_MESSAGES or n_texts <= 5:
            try:
                r = d.generate(PROMPT, **TEXT)
                assert role == "verify" or r.text == expected
                assert r.warning.isprintable()
            except DuoError as e:
                assert role == "verify", e
                assert str(e).isprintable()
            n_texts += 1
            if evil.n > N_MESSAGES / 10:
                before = before or rss_mb(os.getpid())
        assert rss_mb(os.getpid()) - before < N_GROWTH_MB
        d.close()
    finally:
        assert evil.server.stop(0).wait(HANG_S)
