"""RPC servers for tests: real ones, and what is none."""

import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import HANG_S, start_duo
from waits import in_time, join, wait_until

from duo import _core

needs_rpc = pytest.mark.skipif(not _core.supports_rpc(), reason="this llama-cpp-python was built without RPC")


class Server:
    """`duo rpc-server` on 127.0.0.1."""

    def __init__(self, *options: str, port: int = 0, **popen: Any) -> None:
        self.process = start_duo("rpc-server", "-p", str(port), *options, **popen)
        assert self.process.stdout is not None
        self.said = b""
        with in_time(self.process):
            for line in self.process.stdout:
                self.said += line
                if b"transport" in line:
                    break
        found = re.search(rb"endpoint\s*: (\S+:(\d+))", self.said)
        assert found is not None, self.process.communicate(timeout=HANG_S)
        self.endpoint, self.port = found[1].decode(), int(found[2])
        wait_until(self._listens)  # it says so a moment before it does
        # Its output must be read, or a full pipe stops it.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def _listens(self) -> bool:
        host = self.endpoint.rpartition(":")[0]
        with socket.socket() as s:
            return s.connect_ex((host, self.port)) == 0

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(HANG_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def serving(*options: str, **how: Any) -> Iterator[Server]:
    s = Server(*options, **how)
    try:
        yield s
    finally:
        s.close()


@contextmanager
def not_a_server(answer: bytes | None) -> Iterator[str]:
    """Accepts, reads, and answers with these bytes; None: never."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def run() -> None:
            while True:
                try:
                    s = listening.accept()[0]
                except OSError:
                    return
                taken.append(s)
                if answer is not None:
                    try:
                        if s.recv(64):
                            s.sendall(answer)
                    except OSError:
                        continue

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            join(thread)
            for s in taken:
                s.close()


def run_duo(*args: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    p = start_duo(*args, **options)
    try:
        out, err = p.communicate(timeout=HANG_S)
    finally:
        p.kill()
    return subprocess.CompletedProcess(args, p.returncode, out, err)
