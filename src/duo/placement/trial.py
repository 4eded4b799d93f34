"""Computes products that may kill a process, in a child process."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from duo import _core
from duo._libs import libllama

WORKS, WRONG, ABSENT, HANGS = "works", "wrong", "absent", "hangs"
TIMEOUT_S = 60.0  # usually it takes a tenth of a second
# Ends that the machine or the library causes, and that will recur. An exit code or SIGKILL may come from the system.
FAULTS = ("SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "SIGTRAP", "SIGSYS")
LASTING = (WORKS, WRONG, ABSENT, *FAULTS)  # without HANGS: the machine may have been paused


class NotTriedError(Exception):
    """No child process reached a product. The message says why."""


def _environment() -> dict[str, str]:
    # No debugger after an abort, and no time spent on GPUs.
    hidden = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "")
    return {**os.environ, **hidden, "GGML_NO_BACKTRACE": "1"}


def _name_of(code: int) -> str:
    """How a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _run(command: list[str]) -> tuple[bytes, bytes, str]:
    """Standard output and error, and the end: empty (success), HANGS, or as _name_of. Raises OSError, ValueError."""
    import subprocess

    hangs = False
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
    ) as child:
        try:
            # Second by second: if both are stopped (Ctrl-Z), only one second counts.
            for _ in range(math.ceil(TIMEOUT_S)):
                with suppress(subprocess.TimeoutExpired):
                    stdout, stderr = child.communicate(timeout=1.0)
                    break
            else:
                hangs = True
                child.kill()
                stdout, stderr = child.communicate()
        except BaseException:
            child.kill()
            raise
    return stdout, stderr, HANGS if hangs else "" if child.returncode == 0 else _name_of(child.returncode)


def try_products(skip: Collection[str], refused: Collection[str]) -> dict[str, str]:
    """Verdicts by kind of product ("plain", "AMX", "duo avx512"; csrc/cpu/trial.h): WORKS, WRONG, ABSENT, HANGS, or how
    the child ended ("SIGSEGV", "exit code 1"). After such an end, later kinds have no verdict.

    skip: kinds to leave out. refused: duo's instruction sets that must not be used. Raises NotTriedError.
    """
    child = Path(__file__).with_name("trial_child.py")
    command = [sys.executable or "", "-I", "-S", str(child), str(libllama()), _core.__file__]
    command += ["\n".join(skip), "\n".join(refused)]
    if not sys.executable or getattr(sys, "frozen", False):
        raise NotTriedError("this program is not a Python interpreter")
    try:
        stdout, stderr, end = _run(command)
    except (OSError, ValueError) as e:
        raise NotTriedError(f"no child process can be started: {getattr(e, 'strerror', None) or e}") from None
    verdicts: dict[str, str] = {}
    begun = ""
    for line in stdout.decode("utf-8", "replace").splitlines():
        what, _, name = line.partition("\t")
        if what in (WORKS, WRONG, ABSENT):
            verdicts[name] = what
        begun = name if what == "begins" else ""
    if begun:
        verdicts[begun] = end or "exit code 0"
    elif end:
        last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        ending = f"did not finish ({TIMEOUT_S:g} s)" if end == HANGS else f"ended with {end}"
        raise NotTriedError(": ".join([f"the child process {ending}", *last]))
    return verdicts
