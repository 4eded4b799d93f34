"""A Duo in a process that was forked from its own."""

import os

import pytest
from conftest import HANG_S, run_python


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_makes_a_duo_of_its_own() -> None:
    code = """
import os, sys, duo
d = duo.Duo(n_ctx=128)
s = d.stream("x", ignore_eos=True)
next(s)
pid = os.fork()
if pid == 0:
    said = [{"role": "user", "content": "x"}]
    for use in (lambda: next(s), lambda: d.generate("x", max_tokens=3), lambda: d.create_chat_completion(said)):
        try:
            use()
        except duo.DuoError as e:
            print(str(e).partition(",")[0], flush=True)
    with duo.Duo(n_ctx=128) as own:
        print(len(own.generate("x", max_tokens=3, ignore_eos=True).tokens), flush=True)
    d.close()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print(next(s) is not None)
d.close()
"""
    r = run_python(code)
    other = "this Duo belongs to the process that this one was forked from\n"
    assert (r.returncode, r.stdout, r.stderr) == (0, 3 * other + "3\n7\nTrue\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_waits_for_no_thread_of_its_parent() -> None:
    """Another thread holds a stream's lock while this one forks. A child that waits for it is killed by its alarm."""
    code = """
import os, signal, sys, threading, warnings, duo
from contextlib import suppress
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
d = duo.Duo(n_ctx=128)
s = d.stream("x", ignore_eos=True)
inside, leave = threading.Event(), threading.Event()

def blocked(*_):
    inside.set()
    leave.wait()

def read():
    with suppress(duo.CancelledError):
        list(s)

def with_it():
    with s:
        pass

d.session.next_chunk = blocked
reader = threading.Thread(target=read)
reader.start()
inside.wait()
acts = {"exit": lambda: None, "next": lambda: next(s), "close": s.close, "with": with_it, "del": s.__del__,
        "closed Duo": d.close, "deleted Duo": d.__del__, "another": lambda: d.generate("x", max_tokens=1)}
for name, act in acts.items():
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(sys.argv[1]))
        try:
            act()
        except duo.BadValueError as e:
            print(name, "-", str(e).partition(",")[0], flush=True)
        sys.exit(7) if name == "exit" else os._exit(7)  # one whole end is enough
    print(name, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
del d.session.next_chunk
leave.set()
d.close()
reader.join()
"""
    r = run_python(code, str(HANG_S // 2))
    other = " - this Duo belongs to the process that this one was forked from\n"
    ended = {name: f"{name} 7\n" for name in ("exit", "close", "with", "del", "closed Duo", "deleted Duo")}
    ended |= {name: f"{name}{other}{name} 7\n" for name in ("next", "another")}
    order = ("exit", "next", "close", "with", "del", "closed Duo", "deleted Duo", "another")
    assert (r.returncode, r.stdout, r.stderr) == (0, "".join(ended[name] for name in order), "")
