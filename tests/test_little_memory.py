"""Processes that may not have more memory: they end with a sentence, whatever of libggml asked for it."""

import json
import sys
from pathlib import Path

import pytest
from conftest import EXACT, run_python
from sizes import mostly_daily, size

from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
HEAD = TARGET.with_name("duo-demo-eagle3-q8_0.gguf")

# Forks a process for each limit: this one has imported all, and has no thread yet. Where an
# import has no memory, Python itself fails in other ways.
CHILD = """
import json, os, resource, sys
import platformdirs.unix, tempfile
import duo.cli.main, duo.cli.commands.run, duo.cli.first_line, duo.model, duo.placement.guard
import duo.options.accept, duo.remote.client.child_options, duo.remote.parent
from duo import _core
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1024
path, first, last, step = sys.argv[1], *map(int, sys.argv[2:5])
for spare in range(first, last, step):
    pid = os.fork()
    if pid == 0:
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        resource.setrlimit(resource.RLIMIT_AS, (size + spare, size + spare))
        sys.argv = ["duo", *sys.argv[5:]]
        try:
            duo.cli.main.leave()
        except SystemExit as e:
            os._exit(e.code or 0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = open(path, errors="replace").read().strip()
    print(json.dumps([spare, code, said]))
"""
# glibc's own end when a new thread finds no room for its thread-local data.
NO_ROOM = "cannot allocate memory for thread-local data: ABORT"


OF_HEAD = (54 << 20, 124 << 20)  # where a head is loaded; the first is where anything is


@pytest.mark.random
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux's")
@pytest.mark.parametrize(("first", "last"), mostly_daily([(1 << 20, 4 << 20), OF_HEAD], [OF_HEAD]))
def test_too_little_memory_is_a_sentence(first: int, last: int, tmp_path: Path) -> None:
    args = ["-m", TARGET, "-md", HEAD, "-p", "Once upon", "-n", "12", "-c", "512", "--temp", "0", "--cpu-kernels",
            EXACT["cpu_kernels"]]  # fmt: skip
    r = run_python(CHILD, tmp_path / "said", str(first), str(last), str((last - first) // size(7, 28)), *map(str, args))
    assert r.returncode == 0, r.stderr
    found = [json.loads(line) for line in r.stdout.splitlines()]
    assert len(found) >= size(7, 28)
    for spare, code, said in found:
        assert code in (0, 1) or NO_ROOM in said, (spare, code, said)
        assert "Traceback" not in said and "GGML_ASSERT" not in said, (spare, code, said)
        assert code != 1 or said.splitlines()[-1].startswith("duo: "), (spare, code, said)
    assert any(code == 1 for _, code, _ in found), found


# In a thread, whose stack is there from its beginning; that of the program grows, and ends it where it cannot.
VECTORS = """
import os, resource, sys, threading
import numpy
from duo import Duo, DuoError
d = Duo(sys.argv[1], embedding=True, pooling_type=1, n_threads=1, n_threads_batch=1)
text = "a king and his daughter " * 60

def embed(spare):
    size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    taken = []
    try:
        while True:
            taken.append(bytearray(1 << 13))
    except MemoryError:
        while spare > 0:
            spare -= len(taken.pop())
    for _ in range(2):
        try:
            d.embed(text)
        except (DuoError, MemoryError):
            continue
        except BaseException:
            os._exit(3)
        os._exit(0)
    os._exit(1)

for spare in range(1 << 20, 31 << 20, int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        thread = threading.Thread(target=embed, args=(spare,))
        thread.start()
        thread.join()
        os._exit(4)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.daily
@pytest.mark.random
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux's")
def test_vectors_with_too_little_memory_are_a_sentence() -> None:
    n = size(10, 30)
    r = run_python(VECTORS, str(TARGET), str((30 << 20) // n))
    codes = r.stdout.split()
    assert len(codes) == n and set(codes) == {"0", "1"}, r.stdout + r.stderr
