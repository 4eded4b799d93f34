"""A program's own functions that fail, wait, or are left behind."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import HANG_S
from waits import first_line

from duo import Duo, DuoError
from duo.errors import BadValueError, BusyError, CancelledError

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}


class Own(Exception):  # noqa: N818
    pass


def fail_at(n: int, e: BaseException) -> Callable[[Any, Any], Any]:
    def processor(ids: Any, scores: Any) -> Any:
        if len(ids) >= n:
            raise e
        return scores

    return processor


@pytest.mark.parametrize("name", ["logits_processor", "stopping_criteria"])
def test_an_exception_reaches_the_caller_and_the_text_stays(duo_pair: Duo, name: str) -> None:
    prompt = duo_pair.tokenize(PROMPT)
    want = duo_pair.generate(prompt, **GREEDY)

    def hook(ids: Any, scores: Any) -> Any:
        return fail_at(len(prompt) + 9, Own("mine"))(ids, scores) if name == "logits_processor" else (
            fail_at(len(prompt) + 9, Own("mine"))(ids, False)
        )  # fmt: skip

    s = duo_pair.stream(prompt, **GREEDY, **{name: hook})
    with pytest.raises(Own, match="mine"):
        for _ in s:
            pass
    assert (s.result.tokens, s.result.finish_reason) == (want.tokens[:9], "error")
    with pytest.raises(Own):
        duo_pair(PROMPT, **GREEDY, **{name: hook})
    assert duo_pair.generate(prompt, **GREEDY).tokens == want.tokens  # the next text does not notice

    async def ask() -> None:
        await duo_pair.agenerate(prompt, **GREEDY, **{name: hook})

    with pytest.raises(Own):
        asyncio.run(ask())


@pytest.mark.parametrize("processor,why", [
    (lambda i, s: None, "returned NoneType"),
    (lambda i, s: s[:5], r"returned shape \(5,\)"),
    (lambda i, s: s * np.nan, "returned NaN"),
    (lambda i, s: s + np.inf, "returned NaN or infinity"),
    (lambda i, s: s - np.inf, "left no token"),
    (fail_at(0, StopIteration()), "raised StopIteration"),
], ids=["none", "shape", "NaN", "infinity", "nothing left", "StopIteration"])  # fmt: skip
def test_a_bad_score_is_refused(duo_pair: Duo, processor: Any, why: str) -> None:
    with pytest.raises(DuoError, match=why) as e:
        duo_pair.generate(PROMPT, logits_processor=processor, **GREEDY)
    assert e.value.result is not None and e.value.result.tokens == ()
    for name in ("logits_processor", "stopping_criteria"):
        with pytest.raises(BadValueError, match=f"{name} is 3, but input should be a function"):
            duo_pair.generate(PROMPT, **{name: 3})


def test_an_exception_passes_through_a_handler(duo_pair: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise Own

    monkeypatch.setattr(duo_pair, "chat_format", "llama-2")
    with pytest.raises(Own):
        duo_pair.create_chat_completion([{"role": "user", "content": "Hi"}], logits_processor=fail)
    monkeypatch.setattr(duo_pair, "chat_handler", fail)
    with pytest.raises(Own):
        duo_pair.create_chat_completion([{"role": "user", "content": "Hi"}])


def test_a_function_may_read_but_not_begin_or_end_a_text() -> None:
    found: list[Any] = []
    begun = threading.Event()
    with Duo(n_ctx=128) as d:

        def inside(ids: Any, logits: Any) -> bool:
            found.append(d.decode([int(t) for t in ids]))
            assert begun.wait(HANG_S)  # the text begins before its stream has a name
            for call in (lambda: d.generate("x"), lambda: asyncio.run(d.agenerate("x")), d.close, s.close):
                with pytest.raises(BusyError, match="runs inside a text"):
                    call()
            return len(found) > 3

        s = d.stream(PROMPT, stopping_criteria=inside, **GREEDY)
        begun.set()
        tokens = [c.token for c in s if c.token is not None]
        assert (len(tokens), found[0]) == (3, PROMPT)
        assert d.generate(PROMPT, max_tokens=2).tokens


def test_closing_waits_for_the_function_and_nothing_hangs() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(ids: Any, logits: Any) -> bool:
        begun.set()
        go_on.wait(HANG_S)
        return False

    d = Duo(n_ctx=128)
    s = d.stream(PROMPT, stopping_criteria=slow, **GREEDY)
    caught: list[BaseException] = []

    def read() -> None:
        try:
            for _ in s:
                pass
        except BaseException as e:
            caught.append(e)

    reader, closer = threading.Thread(target=read), threading.Thread(target=d.close)
    reader.start()
    assert begun.wait(HANG_S)
    closer.start()
    time.sleep(0.1)
    assert closer.is_alive()
    go_on.set()
    for t in (reader, closer):
        t.join(HANG_S)
        assert not t.is_alive()
    assert [type(e) for e in caught] == [CancelledError]


def test_a_stream_and_its_function_are_let_go(duo_pair: Duo) -> None:
    class Processor:
        def __call__(self, ids: Any, scores: Any) -> Any:
            return scores

    p = Processor()
    gone = weakref.ref(p)
    s = duo_pair.stream(PROMPT, ignore_eos=True, logits_processor=p)
    next(s)
    del s, p
    gc.collect()
    assert gone() is None
    # The collector may find an open stream in the target's own thread.
    kept: list[Any] = []
    dropped = threading.Event()

    def drop(ids: Any, logits: Any) -> bool:
        if len(kept) == 2:
            kept.clear()
            gc.collect()
            dropped.set()
        return False

    kept.append(duo_pair.stream(PROMPT, ignore_eos=True, stopping_criteria=drop))
    next(kept[0])
    kept.append(None)
    assert dropped.wait(HANG_S)
    assert duo_pair.generate(PROMPT, max_tokens=3).tokens


INTERRUPTED = """
import signal, sys, time
from duo import Duo

def slow(ids, logits):
    if len(ids) == 8:
        print("inside", flush=True)
    time.sleep(0.02)
    return False

d = Duo(n_ctx=256)
try:
    d.generate("Once upon a time", ignore_eos=True, stopping_criteria=slow)
except KeyboardInterrupt:
    print(d.generate("Once upon a time", max_tokens=3).finish_reason)
stream = d.stream("Once upon a time", ignore_eos=True, logits_processor=lambda i, s: s)
next(stream)  # left open at the end of the program
"""


def test_ctrl_c_ends_the_text_and_the_program_ends_with_one_open() -> None:
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert first_line(child).strip() == "inside"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=HANG_S)
    assert (out.split(), err, child.returncode) == ([b"length"], b"", 0)
