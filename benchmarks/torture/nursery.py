"""Forks processes from one that has imported everything, which saves most of a second each.

The kernel makes this process the parent of all that its children leave behind (PR_SET_CHILD_SUBREAPER), so it can wait
for what was forked for it, and sees what was left.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.torture.process import Process, die_with_parent


class Nursery:
    """Forks processes. Make it while this process has one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._n = folder, 0
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            die_with_parent()
            keep_only(0, 1, 2, there.fileno())  # nobody must wait for the end of a pipe that this process holds
            try:
                _serve(there)
            finally:
                os._exit(0)
        there.close()
        self._socket = here

    def start(
        self,
        *args: str | Path,
        stdin: bytes | int = b"",
        stdout: int | None = None,
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, int] | None = None,
        call: str = "",
        real: bool = False,
    ) -> Process:
        """`python -m duo ARGS`. call: a function "module:name" that gets the arguments instead. real: a new
        interpreter. stdin, stdout: data, or a descriptor. limits: "RLIMIT_...", soft and hard."""
        self._n += 1
        out_path, err_path = (self._folder / f"{self._n}.{name}" for name in ("out", "err"))
        given: list[int] = []
        if isinstance(stdin, bytes):
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(stdin)
                file.flush()
                file.seek(0)
                stdin = os.dup(file.fileno())
            given.append(stdin)
        if stdout is None:
            stdout = os.open(out_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            given.append(stdout)
        else:
            out_path.touch()
        stderr = os.open(err_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        given.append(stderr)
        try:
            words = list(map(os.fspath, args))
            if real:
                pid = self._real(words, (stdin, stdout, stderr), env, limits)
            else:
                order = {"args": words, "env": {**os.environ, **(env or {})}, "limits": limits or {}, "call": call}
                socket.send_fds(self._socket, [json.dumps(order).encode()], [stdin, stdout, stderr])
                pid = struct.unpack("i", self._socket.recv(4))[0]
        finally:
            for fd in given:
                os.close(fd)
        return Process(pid, out_path, err_path)

    def _real(self, words: Sequence[str], fds: tuple[int, int, int], env: Mapping[str, str] | None, limits: Any) -> int:
        def limit() -> None:
            for name, value in (limits or {}).items():
                resource.setrlimit(getattr(resource, name), (value, value))

        process = subprocess.Popen(
            [sys.executable, "-m", "duo", *words], stdin=fds[0], stdout=fds[1], stderr=fds[2],
            env={**os.environ, **(env or {})}, preexec_fn=limit if limits else None,
        )  # fmt: skip
        process.returncode = 0  # Process waits for it
        return process.pid

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self.pid, 0)


def keep_only(*fds: int) -> None:
    """Closes all other descriptors."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in fds:
            with suppress(OSError):
                os.close(int(name))


def _serve(s: socket.socket) -> None:
    """Forks a grandchild for each order and says its id. Between them a child ends at once, so that it is an orphan."""
    while True:
        data, fds, _, _ = socket.recv_fds(s, 1 << 20, 3)
        if not data:
            return
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            if pid := os.fork():
                os.write(writing, struct.pack("i", pid))
                os._exit(0)
            s.close()
            os.close(reading)
            os.close(writing)
            _become(json.loads(data), fds)
        os.close(writing)
        os.waitpid(between, 0)
        s.send(os.read(reading, 4))
        for fd in (reading, *fds):
            os.close(fd)


def _become(order: Mapping[str, Any], fds: Sequence[int]) -> None:
    code = 1
    try:
        die_with_parent(False)
        for i, fd in enumerate(fds):
            os.dup2(fd, i)
        for fd in fds:
            os.close(fd)
        os.environ.clear()
        os.environ.update(order["env"])
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for name, value in order["limits"].items():
            resource.setrlimit(getattr(resource, name), (value, value))
        for name, n, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            stream = open(n, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        sys.argv = ["duo", *order["args"]]
        code = _run(order)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        _end(code)


def _run(order: Mapping[str, Any]) -> int:
    if order["call"]:
        module, _, name = order["call"].partition(":")
        called: Any = (
            runpy.run_module(module)[name] if module not in sys.modules else getattr(sys.modules[module], name)
        )
        return int(called(*order["args"]) or 0)
    from duo.cli.main import leave

    leave()


def _end(code: int) -> None:
    """As an interpreter ends: threads are waited for, and what was registered is called."""
    import atexit
    import threading

    try:
        with suppress(AttributeError):
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)
