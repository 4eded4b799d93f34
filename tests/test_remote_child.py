"""The child process that holds a model on RPC devices: started, watched, restarted, and never left behind."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S, run_python
from ports import free_port
from rpc_servers import needs_rpc, serving
from waits import first_line

from duo import Duo, DuoError
from duo.options.validate import engine_options
from duo.remote.client.child import HostChild
from duo.remote.client.child_options import host_command, remote_side

# What a host does, without a model: it listens, and ends with its parent.
HOST = """
import socket, sys, time
from duo.remote.parent import end_with_parent
path = sys.argv[1].removeprefix("unix:")
end_with_parent(path)
if "fail" in sys.argv:
    sys.exit("duo: the draft is not to be had")
if "abort" in sys.argv:
    import os
    os.abort()
if "late" in sys.argv:
    time.sleep(1000)
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen()
while True:
    s.accept()[0].close()
"""


def host(*how: str) -> Callable[[str], list[str]]:
    return lambda address: [sys.executable, "-c", HOST, address, *how]


class Heard:
    """What a child reports, waited for."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._more = threading.Condition()

    def __call__(self, reason: str) -> None:
        with self._more:
            self.all.append(reason)
            self._more.notify_all()

    def wait(self, n: int) -> str:
        with self._more:
            assert self._more.wait_for(lambda: len(self.all) >= n, HANG_S), self.all
            return self.all[n - 1]


def started(command: Callable[[str], list[str]], **options: Any) -> HostChild:
    c = HostChild(command, **options)
    c.start()
    return c


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def children() -> Iterator[list[HostChild]]:
    them: list[HostChild] = []
    yield them
    for c in them:
        c.close()


def is_there(pid: int) -> bool:
    """Running: a zombie, that nobody has waited for yet, is not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_gone(pid: int) -> None:
    limit = time.monotonic() + HANG_S
    while is_there(pid):
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_child_is_ready_when_it_listens_and_gone_after_close(heard: Heard) -> None:
    c = started(host(), on_change=heard)
    assert c.wait_known(HANG_S) == "" and c.path.exists()
    assert c.path.parent.stat().st_mode & 0o777 == 0o700
    pid = c.pid
    assert pid is not None and is_there(pid)
    c.close()
    c.close()
    assert not is_there(pid) and not c.path.parent.exists()
    assert heard.all == [""]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_child_that_dies_is_reported_and_started_again(number: int, heard: Heard, children: list[HostChild]) -> None:
    c = started(host(), on_change=heard)
    children.append(c)
    assert heard.wait(1) == ""
    pid = c.pid
    assert pid is not None
    os.kill(pid, number)
    assert heard.wait(2) != ""
    assert heard.wait(3) == ""
    assert c.n_started == 2 and c.pid != pid


def test_the_reason_is_the_childs_last_line(heard: Heard, children: list[HostChild]) -> None:
    children.append(started(host("fail"), on_change=heard))
    assert heard.wait(1) == "the draft is not to be had"


def test_a_child_ended_by_a_signal_is_reported(heard: Heard, children: list[HostChild]) -> None:
    children.append(started(host("abort"), on_change=heard))
    assert f"ended with signal {signal.SIGABRT.value}" in heard.wait(1)


def test_a_child_that_is_never_ready_is_ended(heard: Heard, children: list[HostChild]) -> None:
    children.append(started(host("late"), on_change=heard, start_s=1.0))
    assert "not ready in 1 s" in heard.wait(1)


@needs_rpc
def test_no_child_is_started_before_its_server_is_there(heard: Heard, children: list[HostChild]) -> None:
    port = free_port()
    c = started(host(), servers=[f"127.0.0.1:{port}"], on_change=heard)
    children.append(c)
    assert "cannot be reached" in heard.wait(1) and c.n_started == 0
    with serving(port=port):
        n = len(heard.all)
        while heard.wait(n):  # "" comes when it is ready
            n += 1
    assert c.n_started == 1


@pytest.mark.parametrize("how", ["", "late"])
def test_close_does_not_wait_for_a_child_to_be_ready(how: str) -> None:
    c = started(host(how))
    c.close()
    assert c.pid is None


PARENT = """
import sys, time
from duo.remote.client.child import HostChild
c = HostChild(lambda address: [sys.executable, "-c", sys.argv[1], address])
c.start()
assert c.wait_known(100) == ""
print(c.pid, c.path.parent, flush=True)
if sys.argv[2] == "wait":
    time.sleep(1000)
"""


def test_a_child_does_not_outlive_a_parent_that_is_killed() -> None:
    import subprocess

    parent = subprocess.Popen([sys.executable, "-c", PARENT, HOST, "wait"], stdout=subprocess.PIPE)
    with parent:
        pid, folder = first_line(parent).split()
        assert is_there(int(pid))
        parent.kill()
    wait_gone(int(pid))
    assert not os.path.exists(folder)


def test_a_child_does_not_outlive_a_parent_that_forgets_it() -> None:
    done = run_python(PARENT, HOST, "leave")
    assert done.returncode == 0, done.stderr
    pid, folder = done.stdout.split()
    wait_gone(int(pid))
    assert not os.path.exists(folder)


def test_the_childs_command_line_has_the_users_options_for_its_model() -> None:
    o = engine_options(
        {
            "rpc": "10.0.0.2:50052,10.0.0.3:50052",
            "device_draft": "RPC0,RPC1",
            "n_ctx": 512,
            "n_gpu_layers": 11,
            "n_gpu_layers_draft": 99,
            "strict": True,
            "device": "none",
            "tensor_split": [3, 1],
            "cpu_strict": True,
            "prio_batch": 1,
            "prio_draft": 2,
        }
    )
    assert remote_side(o, has_draft=True) == "draft"
    words = " ".join(host_command("draft", "d.gguf", o, "unix:/s")[3:])
    assert words.startswith("draft-host -md d.gguf ")
    for part in ("-ngld 99", "-devd RPC0,RPC1", "--rpc 10.0.0.2:50052,10.0.0.3:50052", "-cd 512", "--listen unix:/s",
                 "--cpu-strict-draft 1", "--prio-draft 2"):  # fmt: skip
        assert part in words
    assert "--prio-batch" not in words
    assert "-ngl 11" not in words and "-dev none" not in words and "-ts" not in words
    o = engine_options(
        {
            "rpc": "a:1",
            "device": "rpc0",
            "tensor_split": [3, 1],
            "n_gpu_layers_draft": 99,
            "strict": True,
            "cpu_strict": True,
        }
    )
    assert remote_side(o, has_draft=True) == "target"
    words = " ".join(host_command("target", "t.gguf", o, "unix:/s")[3:])
    assert words.startswith("verify-host -m t.gguf ") and "--strict" in words and "-dev rpc0" in words
    assert "-ts 3.0,1.0" in words and "--cpu-strict 1" in words
    assert "-ngld" not in words


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"device": "RPC0"}, r"-dev RPC0 names a device of an RPC server; .*--rpc"),
        ({"device_draft": ["RPC1"]}, r"-devd RPC1 names a device"),
        ({"rpc": "a:1", "device": "RPC0", "device_draft": "RPC1"}, "put one model on this machine"),
        ({"rpc": "a:1", "device_draft": "none"}, "neither -devd nor -dev"),
    ],
)
def test_devices_that_contradict_the_rpc_servers_are_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(DuoError, match=why):
        remote_side(engine_options(options), has_draft=True)


def test_servers_without_a_model_for_them_are_refused() -> None:
    with pytest.raises(DuoError, match=r"for the draft, but there is no draft"):
        remote_side(engine_options({"rpc": "a:1"}), has_draft=False)


@needs_rpc
@pytest.mark.parametrize("device", ["device", "device_draft"])
def test_a_draft_without_a_target_is_refused_with_rpc_servers(device: str) -> None:
    with pytest.raises(DuoError, match=r"a draft was given without a target; give the target too \(-m\)"):
        Duo(draft="d.gguf", rpc="127.0.0.1:9", **{device: "RPC0"})
