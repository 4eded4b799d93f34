"""Threads that ask an engine while another one closes it: nobody waits for a lock with the GIL."""

from __future__ import annotations

import pytest
from conftest import run_python
from sizes import mostly_daily

pytestmark = pytest.mark.full

# An engine without weights, whose last text has a function of the caller's that nobody else holds.
ENGINE = """
import sys, threading
from duo import _core
from duo.errors import DuoError

def engine():
    o = _core.SyntheticOptions()
    o.pass_us, o.c, o.v, o.tracing = 50.0, 0.5, [(1, 50.0)], True
    return _core.Engine(o)

def write(e, n, hook=None):
    text = e.begin(prompt=[1, 2, 3], n_predict=n, sampling=_core.Sampling(), plan=_core.Plan(), stop=[],
                   n_logprobs=-1, hook=hook)
    while (chunk := e.next(text, 10_000_000)) is not None and not chunk.finish:
        pass
"""
ASKS = {
    "usage": "e.usage",
    "running": "e.running",
    "profile": "e.profile()",
    "n_measured": "e.n_measured",
    "restore_profile": "e.restore_profile(e.profile())",
    "take_trace": "e.take_trace()",
}


@pytest.mark.parametrize("ask", mostly_daily(ASKS, ["restore_profile"]))
def test_an_engine_that_closes_freezes_nobody(ask: str) -> None:
    code = f"""{ENGINE}
for _ in range(20):
    e = engine()
    write(e, 5, lambda ids, scores: True)
    asked, stop = threading.Event(), threading.Event()
    def ask():
        while not stop.is_set():
            try:
                {ASKS[ask]}
            except DuoError as err:
                assert err.code == "cancelled", err
            asked.set()
    asker = threading.Thread(target=ask)
    asker.start()
    asked.wait()
    e.close()
    stop.set()
    asker.join()
print("closed")
"""
    done = run_python(code)
    assert done.stdout == "closed\n", done.stderr


@pytest.mark.daily
def test_measurements_are_asked_for_while_texts_begin() -> None:
    code = f"""{ENGINE}
e = engine()
found, stop = [], threading.Event()
def ask():
    while not stop.is_set():
        try:
            found.append(len(e.profile()))
            e.restore_profile(e.profile())
        except DuoError as err:
            assert err.code == "busy", err
asker = threading.Thread(target=ask)
asker.start()
for _ in range(200):
    write(e, 3)
while not found:
    pass
stop.set()
asker.join()
e.close()
print(min(found) > 100)
"""
    done = run_python(code)
    assert done.stdout == "True\n", done.stderr
