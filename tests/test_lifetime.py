"""Threads, streams that are left lying, close() at any moment, Ctrl-C: nothing hangs and nothing stays."""

import asyncio
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S, run_python
from sizes import mostly_daily, size
from waits import in_threads

from duo import Duo, DuoError, _core
from duo.errors import CancelledError
from duo.gguf_tools.switched_duo import SwitchedDuo

pytestmark = pytest.mark.full

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
ENDLESS: dict[str, Any] = {"ignore_eos": True, "max_tokens": -1}
# Decodes that take so long, at most, that something can happen meanwhile.
SLOW: dict[str, Any] = {"n_ctx": 256, "delay": (40_000, 1)}

LIBC = ctypes.CDLL(None)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def n_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def rss_mb() -> float:
    gc.collect()
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)  # what malloc keeps for later is no leak
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# ---- threads


def test_calls_from_several_threads_queue_up(strict_pair: Duo) -> None:
    right = [strict_pair.generate(PROMPT, seed=i, max_tokens=24).text for i in range(6)]
    assert len(set(right)) == 6
    for mode in ("async", "plain"):
        calls = [lambda i=i, m=mode: strict_pair.generate(PROMPT, seed=i, max_tokens=24, mode=m).text for i in range(6)]
        assert in_threads(*calls) == right


def test_two_pairs_at_once() -> None:
    with Duo(n_ctx=256, strict=True) as a, Duo(n_ctx=256, strict=True) as b:
        right = a.generate(PROMPT, **GREEDY).tokens
        calls = [lambda d=d: [d.generate(PROMPT, **GREEDY).tokens for _ in range(4)] for d in (a, b)]
        assert in_threads(*calls) == [[right] * 4] * 2
        with a.stream(PROMPT, **GREEDY) as s, b.stream(PROMPT, **GREEDY) as t:
            assert [(x.token, y.token) for x, y in zip(s, t, strict=True)][:-1] == [(x, x) for x in right]


def test_a_second_stream_in_one_thread_is_an_error_and_no_deadlock(duo_pair: Duo) -> None:
    with duo_pair.stream(PROMPT, **ENDLESS) as s:
        next(s)
        for call in (duo_pair.generate, duo_pair.stream):
            with pytest.raises(DuoError, match="this thread has another stream open"):
                call(PROMPT)
        assert next(s).finish_reason is None  # and the first goes on
    assert duo_pair.generate(PROMPT, **GREEDY).text


def test_a_stream_may_be_read_and_closed_by_another_thread(strict_pair: Duo) -> None:
    right = strict_pair.generate(PROMPT, **GREEDY).text
    s = strict_pair.stream(PROMPT, **GREEDY)
    assert in_threads(lambda: "".join(c.text for c in s)) == [right]
    s = strict_pair.stream(PROMPT, **ENDLESS)
    next(s)
    reader = lambda: sum(1 for _ in s)  # noqa: E731
    n, _ = in_threads(reader, s.close)
    assert isinstance(n, int)
    assert s.result.finish_reason in ("cancelled", "length")
    assert strict_pair.generate(PROMPT, **GREEDY).text == right


@linux_only
def test_the_gil_is_free_while_the_models_work() -> None:
    entered = threading.Event()

    def hook(_ids: Any, _scores: Any) -> bool:
        assert entered.wait(HANG_S)  # and this needs the GIL, in the target's thread
        return False

    with Duo(n_ctx=64) as d:
        plan = _core.Plan()
        plan.mode = "plain"
        text = d.engine.begin(
            prompt=[1, 2], n_predict=1, sampling=_core.Sampling(), plan=plan, stop=[], n_logprobs=-1, hook=hook
        )
        entered.set()
        # One call, in C++ until the target has an answer: which it has only if others can run Python meanwhile.
        assert d.engine.next(text, HANG_S * 1_000_000) is not None


# ---- streams that are left


@pytest.mark.parametrize("how", ["break", "del", "cycle", "exception", "close", "exhausted"])
def test_a_stream_that_is_left_frees_its_slot(strict_pair: Duo, how: str) -> None:
    right = strict_pair.generate(PROMPT, **GREEDY).tokens
    if how == "break":
        for _ in strict_pair.stream(PROMPT, **ENDLESS):
            break
    elif how == "exception":
        with pytest.raises(ZeroDivisionError):
            for _ in strict_pair.stream(PROMPT, **ENDLESS):
                1 / 0  # noqa: B018
        gc.collect()
    else:
        s = strict_pair.stream(PROMPT, **(GREEDY if how == "exhausted" else ENDLESS))
        next(s)
        if how == "cycle":
            s.me = s  # type: ignore[attr-defined]
        if how == "close":
            s.close()
            s.close()
            assert s.result.finish_reason == "cancelled"
            assert s.result.timings["predicted_n"] >= len(s.result.tokens) >= 1
            assert list(s) == []
        elif how == "exhausted":
            assert sum(1 for _ in s) == 40
        else:
            del s
            gc.collect()
    assert strict_pair.generate(PROMPT, **GREEDY).tokens == right


def test_a_stream_that_was_never_read_frees_its_slot(strict_pair: Duo) -> None:
    for _ in range(50):
        strict_pair.stream(PROMPT, **ENDLESS)
    assert strict_pair.generate(PROMPT, **GREEDY).text


# ---- close


def test_a_closed_duo_says_so() -> None:
    d = Duo(n_ctx=64)
    target, draft = d.target, d.draft
    assert draft is not None
    with d:
        assert d.generate(PROMPT, max_tokens=3).text
    d.close()
    assert repr(d) == "<Duo, closed>"
    uses: list[Callable[[], Any]] = [
        lambda: d.generate(PROMPT), lambda: d.stream(PROMPT), lambda: d.tokenize("a"), lambda: d.decode([5]),
        lambda: d.target, lambda: d.draft, lambda: target.n_ctx, lambda: draft.piece(5), lambda: target.tokenize("a"),
        lambda: asyncio.run(d.agenerate(PROMPT)),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(DuoError, match="closed"):
            use()
    d.session.write_trace()


def test_a_duo_that_could_not_be_made_is_closed() -> None:
    with pytest.raises(DuoError) as e:
        Duo("nowhere.gguf")
    d = next(x for x in (entry.frame.f_locals.get("self") for entry in e.traceback) if isinstance(x, Duo))
    assert repr(d) == "<Duo, closed>"


def test_close_while_a_stream_is_open() -> None:
    d = SwitchedDuo(**SLOW)
    s = d.stream(PROMPT, **ENDLESS)
    next(s)
    d.close()
    with pytest.raises(DuoError, match="closed while it generated a text") as e:
        next(s)
    assert e.value.result is not None
    assert len(e.value.result.tokens) == 1
    assert e.value.result.finish_reason == "cancelled"
    assert e.value.result.timings["predicted_n"] >= 1
    assert list(s) == []
    s.close()


def test_close_from_another_thread_ends_the_reader_and_those_who_wait() -> None:
    for i in range(size(5, 10)):
        d = SwitchedDuo(n_ctx=256, delay=(3000, i))
        reading = threading.Event()

        def read(d: Duo = d, reading: threading.Event = reading) -> None:
            for _ in d.stream(PROMPT, **ENDLESS):
                reading.set()

        def close(d: Duo = d, reading: threading.Event = reading) -> None:
            reading.wait(HANG_S)
            d.close()

        waiting = lambda d=d: d.generate(PROMPT, **ENDLESS)  # noqa: E731
        *ends, closed, closed_too = in_threads(read, waiting, waiting, close, close)
        # A text may have run into its full context before; else the error says that it was cut off.
        assert all(isinstance(e, DuoError) or (e is None or e.finish_reason == "length") for e in ends), ends
        assert any(isinstance(e, DuoError) for e in ends) or i
        assert closed is closed_too is None


def test_tokenizing_while_another_thread_closes() -> None:
    for _ in range(size(3, 5)):
        d = Duo(n_ctx=64)

        def use(d: Duo = d) -> None:
            while True:
                assert d.decode(d.tokenize("tin soldier " * 50, add_bos=False)) == "tin soldier " * 50

        ends = in_threads(use, use, lambda d=d: time.sleep(0.01) or d.close())
        assert [type(e) for e in ends] == [CancelledError, CancelledError, type(None)]


def test_a_duo_that_is_dropped_is_closed(tmp_path: Path) -> None:
    d = Duo(n_ctx=64, trace=tmp_path / "t.json")
    next(d.stream(PROMPT, **ENDLESS))
    before = threading.active_count()
    del d
    gc.collect()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.random
@linux_only
@pytest.mark.parametrize("options", mostly_daily([{}, {"n_threads": 2, "n_threads_draft": 2}], [{}]))
def test_nothing_stays_behind_after_close(options: dict[str, Any]) -> None:
    def open_and_close() -> None:
        with Duo(n_ctx=256, **options) as d:
            d.generate(PROMPT, max_tokens=8)
            next(d.stream(PROMPT, **ENDLESS))

    for _ in range(size(3, 8)):  # what is allocated once
        open_and_close()
    threads, memory = n_threads(), rss_mb()
    for _ in range(size(8, 50)):
        open_and_close()
    for _ in range(3000):  # OpenMP tells its threads to go, and does not wait until they are gone
        if n_threads() <= threads:
            break
        time.sleep(0.01)
    assert n_threads() <= threads
    assert rss_mb() < memory + size(18, 30)  # one pair is 11 MB, and its caches 4: two that stay would show


@pytest.mark.daily
@pytest.mark.random
@linux_only
def test_no_memory_grows_over_many_texts(duo_pair: Duo) -> None:
    def generate(i: int) -> None:
        duo_pair.generate(f"{i} {PROMPT}", max_tokens=16, logprobs=3, stop=["never seen"], seed=i)

    for i in range(100):
        generate(i)
    memory = rss_mb()
    for i in range(size(300, 1000)):
        generate(i)
    assert rss_mb() < memory + 10


IN_A_THREAD = "threading.Thread(target=lambda: list(s), daemon=True).start()"


@pytest.mark.parametrize("how", mostly_daily(["", "next(s)", IN_A_THREAD], [IN_A_THREAD]))
def test_a_program_may_end_with_a_stream_open(how: str) -> None:
    code = f"import duo, threading\nd = duo.Duo(n_ctx=256)\ns = d.stream('Once', ignore_eos=True)\n{how}\nprint('end')"
    r = run_python(code)
    assert (r.returncode, r.stdout, r.stderr) == (0, "end\n", "")


# ---- Ctrl-C


def test_ctrl_c_during_generate() -> None:
    code = """
import os, signal, threading
from duo.gguf_tools.switched_duo import SwitchedDuo
d = SwitchedDuo(n_ctx=256, delay=(100_000, 1))
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        d.generate("Once upon a time", ignore_eos=True)
except KeyboardInterrupt:
    print("interrupted")
print(len(d.generate("Once upon a time", max_tokens=5, ignore_eos=True).tokens))
d.close()
"""
    r = run_python(code)
    assert (r.returncode, r.stdout, r.stderr) == (0, "interrupted\n5\n", "")
