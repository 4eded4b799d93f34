"""A Duo in a process that was forked from its own."""

import os

import pytest
from conftest import run_python


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
