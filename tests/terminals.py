"""A pseudo-terminal of 100 columns and 40 lines with duo on it. Every wait has a bound."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
from conftest import HANG_S

ENVIRONMENT = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}


@contextmanager
def terminal(*args: str | Path, env: dict[str, str] | None = None, to: str = "") -> Iterator[pexpect.spawn]:
    """duo on a terminal. `expect` waits for HANG_S at most. to: a redirection, as a shell has it ("2> FILE")."""
    command = shlex.join([sys.executable, "-m", "duo", *map(str, args)])
    child = pexpect.spawn(
        "/bin/sh",
        ["-c", f"exec {command} {to}"],
        env={k: v for k, v in os.environ.items() if k != "NO_COLOR"} | ENVIRONMENT | (env or {}),
        timeout=HANG_S,
        encoding="utf-8",
        codec_errors="replace",
        dimensions=(40, 100),
    )
    child.delaybeforesend = None
    child.ptyproc.delayafterterminate = 5.0
    try:
        yield child
    finally:
        child.close(force=True)


def rest_of(child: pexpect.spawn) -> tuple[int, str]:
    """The exit code, and what the terminal got since the last `expect`."""
    child.expect(pexpect.EOF)
    child.wait()
    code = -child.signalstatus if child.exitstatus is None else child.exitstatus
    return code, child.before
