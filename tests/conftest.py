"""Shared by the tests of what a user does: one loaded demo pair, and how a child process runs the program."""

import atexit
import gc
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import pytest
from marks import pytest_collection as pytest_collection
from marks import pytest_collection_modifyitems as pytest_collection_modifyitems
from marks import pytest_ignore_collect as pytest_ignore_collect
from marks import pytest_terminal_summary as pytest_terminal_summary
from waits import HANG_S as HANG_S

from duo import Duo, _core
from duo.models.demo import demo_pair
from duo.placement import guard, kernels

if TYPE_CHECKING:
    from hosts import HostProcess
    from hub_server import FakeHub
    from served import Server

# A child that aborts must not call for a debugger.
os.environ["GGML_NO_BACKTRACE"] = "1"

# What one test learns of the demo pair is not for the next one.
os.environ["DUO_PROFILES"] = "off"

# Which kernels work here, and which are faster, is found out for this run, and the user's own record is left alone.
# Mesa's compiled shaders stay where they are: without them the first texts on its software device take a minute.
os.environ.setdefault("MESA_SHADER_CACHE_DIR", os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="duo-test-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Each HTTP client reads the list of authorities, 30 ms for all of them. No test speaks to a server outside.
ONE_AUTHORITY = Path(os.environ["XDG_CACHE_HOME"], "authority.pem")
ONE_AUTHORITY.write_text("".join(certifi.contents().partition("-----END CERTIFICATE-----\n")[:2]))
os.environ["SSL_CERT_FILE"] = str(ONE_AUTHORITY)

# PyTorch's AMX products change the tile configuration. llama_cpp's kernels set it only once per thread, so llama_cpp
# would crash in the same process. PyTorch multiplies with oneDNN and MKL; each has its own switch.
PYTORCH_WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E3"}
os.environ.update(PYTORCH_WITHOUT_AMX)

# For texts that must be equal: duo's CPU kernels give the same bits at every width, stock ones only under strict.
STOCK = {"cpu_kernels": "stock", "strict": True}
EXACT = {"cpu_kernels": "duo"} if kernels.available() else STOCK

# The target does not wait for a draft that runs ahead. For tests that count its guesses in async, every decode is up to
# 0.3 ms late: the draft has time while the target sleeps, on a busy machine, too.
HELD: dict[str, Any] = {"always": True, "delay": (300, 1)}

# A run in the background of a shell ignores Ctrl-C, and so would the children that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


gc.disable()  # what is imported for thousands of tests stays; looking through it took a part of the collection


def pytest_collection_finish() -> None:
    _core.log_to(False, b"")  # some test has imported llama_cpp, which takes libllama's log for itself
    gc.collect()
    gc.freeze()  # what was imported so far stays, so no later collection has to look at it
    gc.set_threshold(20_000)
    gc.enable()


@pytest.fixture(autouse=True)
def _no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("LLAMA_ARG_") or name == "LLAMA_CACHE":
            monkeypatch.delenv(name)


@pytest.fixture
def empty_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No pairs of the user's own, and nothing in the hub's cache, which is this folder."""
    monkeypatch.setattr("duo.models.pairs.user_config_path", lambda name: tmp_path / "config" / name)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


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


@contextmanager
def llama_and_duo(**options: Any) -> "Iterator[tuple[Any, Duo]]":
    """The demo target in llama_cpp.Llama, and the pair in a Duo that adds as llama_cpp does."""
    need_llama_cpp()
    import llama_cpp

    llama = llama_cpp.Llama(str(demo_pair()[0]), **options)
    with Duo(*demo_pair(), cpu_kernels="stock", flash_attn="off", **options) as d:
        yield llama, d
    llama.close()


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """The program in this process: exit code, standard output, standard error, also what libraries write there."""
    from duo.cli.main import main

    def call(*args: Any, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(a) for a in args])
        out, err = capfd.readouterr()
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


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "CPU_REPACK" not in _core.extra_buffers():
        pytest.skip("this libggml-cpu has no buffers that could pass for AMX's")
    from faulty_machine import built

    folder = tmp_path_factory.getbasetemp()
    return built(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture
def this_process(monkeypatch: pytest.MonkeyPatch, stand_in: Path, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Children of this process meet the stand-in; afterwards this process finds what is true again."""
    others = [name for name in _core.extra_buffers() if name != "AMX"]  # as the stand-in has it
    with pytest.MonkeyPatch.context() as m:
        m.setenv("LD_PRELOAD", str(stand_in))
        m.setenv("FAULTY", "")
        m.setattr(guard._core, "extra_buffers", lambda: others)
        m.setenv("XDG_CACHE_HOME", str(tmp_path))
        yield m
    guard.find(refresh=True)


@pytest.fixture(scope="module")
def server() -> "Iterator[Server]":
    """`duo serve` with the demo pair, which speculates whether it pays or not."""
    from served import TEMPLATE, served

    with served({"queue": 100}, chat_template=TEMPLATE, always=True) as s:
        yield s


@pytest.fixture(scope="module")
def alone() -> Iterator[Duo]:
    """The same pair without a server."""
    from served import TEMPLATE

    with Duo(n_ctx=2048, chat_template=TEMPLATE) as d:
        yield d


Races = list[tuple[str, list[int]]]


@pytest.fixture
def no_memory_of_races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.RACED.clear()
    yield tmp_path
    kernels.RACED.clear()


@pytest.fixture
def races(no_memory_of_races: Path, monkeypatch: pytest.MonkeyPatch) -> Races:
    """What is raced. By width, stock against duo: q8_0 is duo's at any width, q4_K at none, q6_K has slow prompts,
    bf16 pays where passes are wide; f16 is stock's for a team of two. Twice the threads take half the time."""
    raced: Races = []
    duo = {
        "q8_0": {1: 0.9, 2: 0.5, 4: 0.4, 64: 0.5},
        "q4_K": {1: 1.1, 2: 1.1, 4: 1.1, 64: 1.1},
        "q6_K": {1: 0.8, 2: 0.8, 4: 0.8, 64: 3.0},
        "bf16": {1: 1.3, 2: 0.6, 4: 0.45, 64: 1.0},
        "f16": {1: 0.9, 2: 0.9, 4: 0.9, 64: 0.9},
        **{kind: {1: 0.9, 2: 0.5, 4: 0.4, 64: 0.5} for kind in ("q4_0", "iq4_nl", "q5_0")},
    }
    stock = {1: 1.0, 2: 2.0, 4: 3.0, 64: 30.0}

    def race(kind: str, widths: list[int], teams: list[int], us: int) -> list[tuple[int, list[tuple[float, float]]]]:
        raced.append((kind, list(teams)))
        slow = {n: 3.0 if kind == "f16" and n == 2 else 1.0 for n in teams}
        return [(2048 * n, [(stock[w] / n, stock[w] / n * duo[kind][w] * slow[n]) for w in widths]) for n in teams]

    monkeypatch.setattr(_core, "race", race)
    monkeypatch.setattr(kernels, "other_cores", lambda *_: 0.0)
    return raced


needs_kernels = pytest.mark.skipif(_core.kernels()[0] == "", reason=f"no kernels here: {_core.kernels()[1]}")


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


def run_python(
    code: str, *args: str | Path, python: str = sys.executable, **options: Any
) -> "subprocess.CompletedProcess[str]":
    command = [python, "-X", "faulthandler", "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, **options)
