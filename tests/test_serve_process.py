"""`duo serve` as a process: full disks, a port in use, too few descriptors."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import HANG_S, start_duo


def start(*args: str, **options: Any) -> tuple[subprocess.Popen[bytes], str]:
    """The program and its address, which it says on standard error if standard output is used otherwise."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    env = {**os.environ, "DUO_PROFILES": "off"}
    p = start_duo("serve", "--port", str(port), "-c", "2048", *args, env=env, **options)
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + HANG_S
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(url + "/health", timeout=HANG_S).status_code == 200:
                return p, url
        assert p.poll() is None and time.monotonic() < until, p.communicate()
        time.sleep(0.05)


def write(url: str) -> None:
    """A short text is served."""
    answer = httpx.post(url + "/completion", json={"prompt": "a", "n_predict": 4}, timeout=HANG_S)
    assert answer.json()["tokens_predicted"] == 4


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system could be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("which", ["all standard streams", "the log file"])
def test_a_full_disk_ends_no_server(which: str) -> None:
    with open("/dev/full", "wb") as full:
        more: dict[str, Any] = {"stdout": full, "stderr": full} if which == "all standard streams" else {}
        args = ("-v",) if more else ("--log-file", "/dev/full")
        p, url = start(*args, **more)
    try:
        write(url)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=HANG_S)
    finally:
        p.kill()
    if not more:
        assert p.returncode == 0 and err.decode().splitlines()[-1] == "duo: the server has ended"


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_server_writes_its_log(tmp_path: Path) -> None:
    with small_disk(tmp_path) as folder:
        p, url = start("--log-file", str(folder / "log"), "-np", "2")
        try:
            assert (folder / "log").stat().st_size > 0
            with suppress(OSError), open(folder / "rest", "wb", buffering=0) as f:
                while True:
                    f.write(bytes(4096))
            for _ in range(3):
                write(url)
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=HANG_S)
        finally:
            p.kill()
            p.communicate()
        assert p.returncode == 0 and b"Traceback" not in err


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        p = start_duo("serve", "--port", str(s.getsockname()[1]))
        out, err = p.communicate(timeout=HANG_S)
    (line,) = err.decode().splitlines()[-1:]
    assert p.returncode == 1 and out == b"" and "Traceback" not in err.decode()
    assert line.startswith("duo: the server cannot listen on 127.0.0.1 port") and line.endswith("another --port")
    assert os.strerror(errno.EADDRINUSE) in line


def test_descriptors_that_run_out() -> None:
    """More connections come than the system gives descriptors for; when some have gone, the next one is served."""

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))

    p, url = start("--header-timeout", "600", preexec_fn=few)
    try:
        port = int(url.rsplit(":", 1)[1])
        idle = [socket.create_connection(("127.0.0.1", port), HANG_S) for _ in range(200)]
        for s in idle:
            s.close()
        write(url)
        p.send_signal(signal.SIGTERM)
        assert p.wait(HANG_S) == 0
    finally:
        p.kill()
        _, err = p.communicate()
    assert b"Traceback" not in err
