"""Shared by the tests of what a user does: one loaded demo pair, and how a child process runs the program."""

import atexit
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from duo import Duo, guard, kernels
from duo.demo import demo_pair

if TYPE_CHECKING:
    from hosts import HostProcess
    from hub_server import FakeHub

# A child that aborts must not call for a debugger, and one that hangs must not hang the tests.
os.environ["GGML_NO_BACKTRACE"] = "1"
HANG_S = 120

# What one test learns of the demo pair is not for the next one.
os.environ["DUO_PROFILES"] = "off"

# Which kernels work here, and which are faster, is found out for this run, and the user's own record is left alone.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="duo-test-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# For texts that must be equal: duo's CPU kernels give the same bits at every width, stock ones only under strict.
STOCK = {"cpu_kernels": "stock", "strict": True}
EXACT = {"cpu_kernels": "duo"} if kernels.available() else STOCK

# A run in the background of a shell ignores Ctrl-C, and so would the children that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith(("test_remote", "test_rpc")):
            item.add_marker("remote")


@pytest.fixture(autouse=True)
def _no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("LLAMA_ARG_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def duo_pair() -> Iterator[Duo]:
    """The demo pair. Tests that close it, or need other options, make their own."""
    with Duo(n_ctx=512) as d:
        yield d


@pytest.fixture(scope="session")
def strict_pair() -> Iterator[Duo]:
    """The demo pair with the same bits at every width: for texts that must be equal."""
    with Duo(n_ctx=512, strict=True) as d:
        yield d


@pytest.fixture(scope="session")
def target_alone() -> Iterator[Duo]:
    with Duo(demo_pair()[0], n_ctx=512, strict=True) as d:
        yield d


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """The program in this process: exit code, standard output, standard error."""
    from duo.cli.main import main

    def call(*args: Any, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(a) for a in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="module")
def draft_host() -> "Iterator[HostProcess]":
    from hosts import host

    with host("draft", "-td", "1", "-np", "2") as h:
        yield h


@pytest.fixture(scope="module")
def verify_host() -> "Iterator[HostProcess]":
    from hosts import KERNELS, host

    with host("verify", "-t", "1", "-c", "1024", "-np", "2", *KERNELS) as h:
        yield h


@pytest.fixture(scope="session")
def long_texts() -> dict[str, str]:
    """GREEDY and SEEDED of hosts.py, undisturbed."""
    from hosts import GREEDY, PROMPT, SEEDED

    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        return {name: d.generate(PROMPT, **o).text for name, o in (("greedy", GREEDY), ("seeded", SEEDED))}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> "Iterator[FakeHub]":
    """A hub of models on this machine, and nothing in the environment that speaks of another."""
    from hub_server import ENVIRONMENT, serving, tales

    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with serving(tales()) as hub:
        yield hub


def need_llama_cpp() -> None:
    """Skips where llama_cpp.Llama, which nothing guards, would end the process."""
    if not guard.find().extra_allowed:
        pytest.skip(f"llama_cpp.Llama crashes here: {guard.find().warning}")


def lines_but_the_guards(err: str) -> list[str]:
    """Of standard error: a machine on which some kernels crash says one more."""
    return [line for line in err.splitlines() if " kernels crash here" not in line]


def start_duo(*args: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
    """The program in a child process; pipes for what is not given."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-m", "duo", *map(str, args)], **options)


def run_python(code: str, *args: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-X", "faulthandler", "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, **options)
