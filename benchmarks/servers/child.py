"""A server as a child process, and what it holds of the system."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile

import httpx

READY_S = 300.0
END_S = 60.0


@dataclass(frozen=True)
class Held:
    """What a process holds. Sizes in MB (1e6 bytes)."""

    rss: float  # resident, files included
    own: float  # of it not from files: grows with a leak, and not with pages of the model that are read late
    threads: int
    files: int  # descriptors

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def held_by(pid: int) -> Held:
    """Raises OSError: the process has gone."""
    proc = Path(f"/proc/{pid}")
    found = dict(re.findall(r"^(\w+):\s+(\d+)", (proc / "status").read_text(), re.MULTILINE))
    mb = {name: int(found[name]) * 1024 / 1e6 for name in ("VmRSS", "RssAnon")}
    return Held(mb["VmRSS"], mb["RssAnon"], int(found["Threads"]), len(os.listdir(proc / "fd")))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Child:
    """A server that answers."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def held(self) -> Held:
        return held_by(self.process.pid)


@contextmanager
def started(
    name: str, command: Sequence[str], *, ready: str = "/health", env: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Runs the command, in which {port} is replaced, until `ready` answers with 200; SIGTERM ends it.

    Raises SystemExit with the end of its log: it does not start, or does not end in time.
    """
    port = free_port()
    with TemporaryFile() as log:
        process = subprocess.Popen(
            [part.replace("{port}", str(port)) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**_environment(), **(env or {})},
        )

        def said() -> str:
            log.seek(0)
            return log.read()[-2000:].decode("utf-8", "replace")

        try:
            until = time.monotonic() + READY_S
            while not _answers(f"http://127.0.0.1:{port}{ready}"):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{name} does not start: {' '.join(command)}\n{said()}")
                time.sleep(0.1)
            yield Child(name, port, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise SystemExit(f"{name} did not end within {END_S:g} s of SIGTERM\n{said()}") from None


def _environment() -> dict[str, str]:
    """As this process was given it: loading a model sets variables of OpenMP, which others must not inherit."""
    found = Path("/proc/self/environ").read_bytes().split(b"\0")
    return {os.fsdecode(k): os.fsdecode(v) for k, _, v in (x.partition(b"=") for x in found if x)}


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
