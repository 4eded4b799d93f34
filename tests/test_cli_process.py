"""The program as a process: exit codes, readers that go away, full disks, closed streams, Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EXACT, HANG_S, lines_but_the_guards, start_duo
from hosts import KERNELS
from sizes import mostly_daily
from waits import first_bytes

import duo

pytestmark = pytest.mark.full

PROMPT = "Once upon a time"


def test_python_dash_m_and_the_exit_code() -> None:
    p = start_duo("-p", PROMPT, "-n", 3, "--temp", 0)
    out, _ = p.communicate(timeout=HANG_S)
    assert p.returncode == 0
    assert out.decode().startswith(PROMPT)
    p = start_duo("-p", PROMPT, "-n", 0)
    out, err = p.communicate(timeout=HANG_S)
    assert (p.returncode, out) == (1, b"")
    assert err == b"duo: max_tokens (-n) is 0; give at least 1, or -1 for no limit\n"


KEYS = [
    ("click.shell_completion", "KeyboardInterrupt"),
    ("duo._core", "KeyboardInterrupt"),
    ("duo._core", "ImportError('_core') from KeyboardInterrupt()"),
    ("duo._core", "SystemError('native code') from KeyboardInterrupt()"),
]


@pytest.mark.parametrize(("module", "how"), mostly_daily(KEYS, [KEYS[0], KEYS[2]]))
def test_ctrl_c_before_anything_is_loaded(module: str, how: str) -> None:
    code = f"""
import sys
class Key:
    def find_spec(self, name, *_):
        if name == "{module}":
            raise {how}
sys.meta_path.insert(0, Key())
sys.argv = ["/usr/bin/duo", "-p", "x"]
from duo.cli.main import leave
leave()
"""
    p = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=HANG_S, check=False)
    assert (p.returncode, p.stdout, p.stderr.strip()) == (130, b"", b"")


def test_ctrl_c_while_the_interpreter_ends() -> None:
    """All is written then. Found by benchmarks/torture."""
    code = """
import atexit, os, signal, sys
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["/usr/bin/duo", "--version"]
from duo.cli.main import leave
leave()
"""
    p = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=HANG_S, check=False)
    assert p.returncode == 0 and p.stdout.startswith(b"duo ") and p.stderr == b""


def test_a_reader_that_goes_away_is_no_failure() -> None:
    p = start_duo("-p", PROMPT, "-n", -1, "-c", 5000, "--ignore-eos")
    assert p.stdout is not None
    assert first_bytes(p, 30).decode().startswith(PROMPT)
    p.stdout.close()
    _, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 0
    assert len(lines_but_the_guards(err.decode())) == 1  # the first line


def test_a_reader_of_a_table_that_goes_away_is_no_failure() -> None:
    """rich ends the process by itself then, with code 1."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        p = start_duo("pairs", stdout=writer)
    finally:
        os.close(writer)
    _, err = p.communicate(timeout=HANG_S)
    assert (p.returncode, err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        p = start_duo("-p", PROMPT, "-n", 3, stdout=full)
        _, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 1
    assert err.decode().splitlines()[-1] == "duo: cannot write the output (No space left on device)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_messages_on_a_full_disk_cost_no_text() -> None:
    command = f'"$0" -m duo -p "{PROMPT}" -n 3 --temp 0 2>/dev/full'
    r = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, timeout=HANG_S, check=False)
    assert r.returncode == 0 and r.stdout.startswith(PROMPT.encode()) and len(r.stdout.strip()) > len(PROMPT)


ALL_CLOSED = "<&- >&- 2>&-"


@pytest.mark.parametrize("closed", mostly_daily(["<&-", ">&-", "2>&-", ALL_CLOSED], [ALL_CLOSED]))
def test_closed_standard_streams(closed: str) -> None:
    command = f'"$0" -m duo -p "{PROMPT}" -n 3 --temp 0 {closed}'
    r = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, timeout=HANG_S, check=False)
    assert r.returncode == 0
    assert b"Traceback" not in r.stderr
    assert r.stdout.startswith(PROMPT.encode()) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.daily
def test_a_terminal_without_the_characters() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    p = start_duo("-p", "é😀", "-n", 3, env=environment)
    out, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 0, err
    assert out.startswith(b"??")


def test_missing_libraries_are_reported_in_one_sentence(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("duo")
    if not program.exists():
        pytest.skip("the program is not installed beside this Python")
    environment = os.environ | {"LLAMA_CPP_LIB_PATH": str(tmp_path)}
    r = subprocess.run([program, "-p", "x"], capture_output=True, text=True, env=environment, check=False)
    assert r.returncode == 1
    assert r.stderr.count("\n") == 1
    assert r.stderr.startswith(f"duo: {tmp_path}")
    assert "pip install" in r.stderr


def test_ctrl_c_in_the_program_keeps_the_text() -> None:
    p = start_duo("-p", PROMPT, "-n", -1, "--ignore-eos", "-c", 20_000, "--seed", 1, "--temp", 0, *KERNELS)
    head = first_bytes(p, 60)
    p.send_signal(signal.SIGINT)
    rest, err = p.communicate(timeout=HANG_S)
    assert p.returncode == 130
    text = (head + rest).decode()
    assert text.startswith(PROMPT + duo.generate(PROMPT, n_ctx=512, temperature=0, max_tokens=3, **EXACT).text)
    assert text.endswith("\n")
    assert "Traceback" not in err.decode()
    assert "cancelled" in err.decode()
