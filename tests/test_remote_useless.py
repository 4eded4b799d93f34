"""Hosts that are there and of no use, come back as others, or are not waited for; what the program then writes."""

import gc
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HANG_S, start_duo
from hostile import HostileHost
from hosts import GREEDY, KERNELS, LONG, PROMPT, deaf, host, remote, write
from sizes import mostly_daily
from waits import in_time, wait_until

from duo import Chunk, Duo, DuoError
from duo.cli import show
from duo.cli.commands.chat import answer
from duo.conversation import Conversation
from duo.generation.stream import Stream
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

pytest.importorskip("grpc")

from duo.remote.address import HostAddress
from duo.remote.client import attach, client
from duo.remote.client.connection import Calls, CallWithdrawn, ClientSettings, HostSession, new_key
from duo.remote.wire import wire_pb2 as wire

Run = Callable[..., tuple[int, str, str]]


class PoorHost(HostileHost):
    """Says hello as it should, and `answers` to each text."""

    def __init__(self, role: str, *answers: Any) -> None:
        self.answers, self.n_texts = answers, 0
        super().__init__(role, 1)

    def text(self, requests: Any, context: Any) -> Iterator[bytes]:
        self.n_texts += 1
        next(requests)
        for a in self.answers:
            yield a.SerializeToString()


@contextmanager
def poor_host(role: str, *answers: Any) -> Iterator[PoorHost]:
    h = PoorHost(role, *answers)
    h.n = 0  # its hello is never damaged
    try:
        yield h
    finally:
        assert h.server.stop(0).wait(HANG_S)


def test_an_end_that_is_refused_ends_the_text_all_the_same() -> None:
    impossible = wire.Verdict(token=300, n_ahead=1, n_branch=1, branch_price=0)
    nonsense = wire.FromVerify(verdicts=[impossible], chunks=[wire.Chunk(kind=2, finish="stop", token=-1)])
    with poor_host("verify", nonsense) as h, Duo(verify_host=h.address, n_ctx=512) as d:
        for _ in range(2):
            with pytest.raises(DuoError, match="does not behave like a duo host") as e:
                d.generate(PROMPT, max_tokens=5)
            assert e.value.result is not None


def test_a_draft_host_that_says_hello_and_nothing_else_is_not_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch, long_texts: dict[str, str]
) -> None:
    monkeypatch.setattr(client, "BACK_OFF_FIRST_S", 1000.0)
    monkeypatch.setattr(client, "BACK_OFF_MOST_S", 1000.0)
    with poor_host("draft") as h, SwitchedDuo(draft_host=h.address, n_ctx=1024, always=True, **EXACT) as d:
        assert d.network is not None

        def write_one() -> None:
            assert long_texts["greedy"].startswith(d.generate(PROMPT, **GREEDY | {"max_tokens": 60}).text)

        for _ in range(100):  # a short text may be over before its host's stream ends
            write_one()
            if h.n_texts and not d.network.clients[0].host_model:  # the client has given this host up
                break
        n_texts = h.n_texts
        assert 0 < n_texts < 100
        for _ in range(3):
            write_one()
        assert h.n_texts == n_texts


@pytest.mark.daily
def test_a_host_that_comes_back_with_another_model_does_not_go_on(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    shutil.copy(demo_pair()[0], other)
    with host("verify", "-t", "1", "-c", "1024", *KERNELS) as h, remote("verify", h) as d:

        def exchange() -> None:
            h.kill()
            h.args = (*h.args, "-m", other)
            h.start()

        with pytest.raises(DuoError, match=r"came back with another model \(other\.gguf, not ") as e:
            write(d, GREEDY, {50: exchange})
        assert e.value.result is not None and e.value.result.tokens
        assert len(d.generate(PROMPT, **GREEDY).tokens) == LONG["max_tokens"]  # a new text may


def test_a_withdrawn_call_is_not_waited_for() -> None:
    with deaf() as address:
        settings = ClientSettings(HostAddress.of(address, option="--verify-host"), role="verify")
        asked = []

        def off() -> bool:
            asked.append(1)
            return len(asked) > 2

        with pytest.raises(CallWithdrawn):
            HostSession(settings, None, new_key(), Calls(off))


@pytest.mark.daily
def test_an_unexpected_error_ends_the_text_but_not_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("the cat is on the cable")

    with host("verify", "-t", "1", "-c", "1024") as h, remote("verify", h) as d:
        assert d.network is not None
        with monkeypatch.context() as m:
            m.setattr(d.network.clients[0], "_stream", broken)
            with pytest.raises(DuoError, match=rf"to the verify host {h.address} failed \(the cat is on the cable\)"):
                d.generate(PROMPT, **GREEDY)
        assert d.generate(PROMPT, **GREEDY).text


@pytest.mark.daily
def test_a_text_that_is_collected_in_a_thread_of_its_own_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with host("verify", "-t", "1", "-c", "1024") as h, remote("verify", h) as d:
        assert d.network is not None
        received, collected = d.network.clients[0].figures.received, threading.Event()

        def collect(n_bytes: int) -> None:
            received(n_bytes)
            if abandoned.is_set():
                gc.collect()
                collected.set()

        abandoned = threading.Event()
        monkeypatch.setattr(d.network.clients[0].figures, "received", collect)
        gc.disable()
        try:
            s = d.stream(PROMPT, **GREEDY)
            next(s)
            s.on_close = s.close  # a cycle
            del s
            abandoned.set()
            assert collected.wait(HANG_S)
        finally:
            gc.enable()
        assert d.generate(PROMPT, max_tokens=5).text


# ---- the program


@pytest.mark.parametrize("option", mostly_daily(["--draft-host", "--verify-host", "--rpc"], ["--draft-host"]))
def test_an_invalid_host_name_is_reported_in_one_sentence(option: str, run: Run) -> None:
    code, out, err = run(option, "a..b:1", "--require-draft", "-p", PROMPT)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert err.startswith("duo: ")


@pytest.mark.daily
def test_the_program_writes_all_that_came_before_its_host_was_lost(long_texts: dict[str, str]) -> None:
    # Most of the text may be the beginning of this stop string, so that it is held back.
    stop = long_texts["greedy"][40:800] + "@"
    with host("verify", "-t", "1", "-c", "32768", *KERNELS) as h:
        p = start_duo("--verify-host", h.address, "--host-patience", 0.5, "-p", PROMPT, "-n", 32000, "--temp", 0,
                      "--ignore-eos", "-r", stop, bufsize=0)  # fmt: skip
        assert p.stdout is not None
        head = b""
        with in_time(p):
            while len(head) < len(PROMPT) + 20:
                head += (more := p.stdout.read(100))
                assert more
        h.kill()
        rest, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 1
    lines = err.decode().splitlines()
    assert lines[-1].endswith("has not come back for 0.5 s; the text so far is kept")
    assert sum("has not come back" in line for line in lines) == 1
    (n_tokens,) = (int(m[1]) for m in map(re.compile(r"tokens: (\d+) \(error\)").fullmatch, lines) if m)
    with Duo(demo_pair()[0], n_ctx=32768, **EXACT) as d:
        whole = d.generate(PROMPT, temperature=0, ignore_eos=True, max_tokens=n_tokens)
    assert (head + rest).decode().removesuffix("\n") == PROMPT + whole.text


def test_json_has_a_text_that_ended_in_an_error(run: Run) -> None:
    with Duo(n_ctx=512) as d:
        tokens = d.tokenize(" king was old", add_bos=False)
        text = d.decode(tokens)
    written = wire.FromVerify(chunks=[wire.Chunk(kind=0, token=t) for t in tokens])
    ended = wire.FromVerify(chunks=[wire.Chunk(kind=2, finish="error", token=-1)], error="the cat is on the GPU")
    with poor_host("verify", written, ended) as h:
        code, out, err = run("--verify-host", h.address, "-p", PROMPT, "-c", 512, "-n", 20, "--json")
    found = json.loads(out)  # and nothing else
    assert code == 1 and (found["finish_reason"], found["text"]) == ("error", text)
    assert found["completion_tokens"] == len(tokens) and "the cat is on the GPU" in err.splitlines()[-1]


def test_a_conversation_shows_and_keeps_what_came_before_its_host_was_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"temperature": 0, "ignore_eos": True, "max_tokens": 400}
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d, Conversation(d, d.chat_template).ask("Go on.", **options) as s:
        whole = "".join(chunk.text for chunk in s)
    n, call = [0], show.TokenPrinter.__call__
    with host("verify", "-t", "1", "-c", "1024", *KERNELS) as h, remote("verify", h, host_patience=0.2) as d:

        def lost(self: show.TokenPrinter, chunk: Chunk) -> None:
            call(self, chunk)
            n[0] += 1
            if n[0] == 60:
                h.kill()

        monkeypatch.setattr(show.TokenPrinter, "__call__", lost)
        talk = Conversation(d, d.chat_template)
        # Most of the text may be the beginning of this stop string, so that it is held back.
        with pytest.raises(DuoError, match="the text so far is kept"):
            answer(talk, "Go on.", options | {"stop": whole[20:800] + "@"}, color=False)
    assert talk.last is not None and len(talk.last.tokens) >= 60
    assert talk.messages[-1]["content"] == talk.last.text
    assert whole.startswith(talk.last.text)
    assert capsys.readouterr().out == talk.last.text + "\n"


def test_the_warning_of_a_lost_draft_says_once_that_the_text_went_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Duo.stream

    def that_loses_its_draft(d: Duo, prompt: str, **options: Any) -> Stream:
        seen: list[Any] = []

        def lose(ids: Any, _scores: Any) -> bool:  # the target waits for this function
            seen.append(ids)
            if len(seen) == 20:
                h.kill()
                wait_until(lambda: not d.network.host_model, "the draft is not missed")  # type: ignore[union-attr]
            return False

        return stream(d, prompt, stopping_criteria=lose, **options)

    monkeypatch.setattr(Duo, "stream", that_loses_its_draft)
    monkeypatch.setattr(attach, "WAIT_DRAFT_S", HANG_S)
    with host("draft", "-td", "1") as h:
        code, out, err = run(
            "--draft-host", h.address, "-p", PROMPT, "-n", 400, "-c", 1024, "--ignore-eos", "--temp", 0
        )
    assert code == 0 and len(out) > len(PROMPT) + 400
    said = [line for line in err.splitlines() if "the text went on" in line]
    assert len(said) == 1
    assert said[0].count("the text went on") == 1
