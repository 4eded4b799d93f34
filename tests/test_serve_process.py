"""`duo serve` as a process: signals, a socket, mistakes; full disks, a port in use, too few descriptors."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import HANG_S, start_duo
from ports import free_port
from served import TALE, served
from sizes import mostly_daily
from waits import first_line, wait_until

pytestmark = pytest.mark.full

Program = Callable[..., tuple[subprocess.Popen[bytes], str]]


def start(*args: str, **options: Any) -> tuple[subprocess.Popen[bytes], str]:
    """The program and its address, when it answers: its standard streams may be used otherwise."""
    port = free_port()
    env = {**os.environ, "DUO_PROFILES": "off"}
    p = start_duo("serve", "--port", str(port), "-c", "2048", *args, env=env, **options)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert p.poll() is None, p.communicate(timeout=HANG_S)
        with suppress(httpx.TransportError):
            return httpx.get(url + "/health", timeout=HANG_S).status_code == 200
        return False

    wait_until(answers)
    return p, url


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


@pytest.mark.daily  # test_cli_process has full disks
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("which", mostly_daily(["all standard streams", "the log file"], ["all standard streams"]))
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


@pytest.mark.daily
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
            p.communicate(timeout=HANG_S)
        assert p.returncode == 0 and b"Traceback" not in err


def test_a_port_in_use(run: Callable[..., tuple[int, str, str]]) -> None:
    with served(n_ctx=512) as first:
        code, out, err = run("serve", "--port", first.url.rsplit(":", 1)[1])
        write(first.url)  # it goes on
    (line,) = err.splitlines()[-1:]
    assert code == 1 and out == "" and "Traceback" not in err
    assert line.startswith("duo: the server cannot listen on 127.0.0.1 port") and line.endswith("another --port")
    assert os.strerror(errno.EADDRINUSE) in line


@pytest.mark.daily
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
        _, err = p.communicate(timeout=HANG_S)
    assert b"Traceback" not in err


# ---- how it ends


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> tuple[subprocess.Popen[bytes], str]:
        p = start_duo("serve", "--port", "0", "-c", "2048", *args, env={**os.environ, "DUO_PROFILES": "off"})
        started.append(p)
        line = first_line(p)
        return p, line.split(" on ")[1].split(" (")[0] if " on " in line else line

    yield start
    for p in started:
        p.kill()
        p.communicate(timeout=HANG_S)


def test_sigterm_lets_eight_texts_end(program: Program) -> None:
    p, url = program("-np", "4", "-c", "8192", "--drain", "60")
    answers: list[httpx.Response] = []
    # Clients that are ready: eight requests are there before the first four texts end.
    clients = [httpx.Client(verify=False, timeout=HANG_S) for _ in range(8)]

    def ask(client: httpx.Client) -> None:
        body = {"messages": TALE, "max_tokens": 200, "ignore_eos": True, "stream": True}
        with client:
            answers.append(client.post(url + "/v1/chat/completions", json=body))

    threads = [threading.Thread(target=ask, args=(c,)) for c in clients]
    for t in threads:
        t.start()
    inside = ("duo_requests_running 4.0", "duo_requests_waiting 4.0")
    until = time.monotonic() + HANG_S
    with httpx.Client(verify=False, timeout=HANG_S) as client:
        while not all(x in (metrics := client.get(url + "/metrics").text) for x in inside):
            assert time.monotonic() < until and not answers, metrics
            time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    states: set[Any] = set()
    while not states >= {503, "refused"}:
        try:  # the port is open for a while, and says that the server is not ready
            states.add(httpx.get(url + "/health", timeout=HANG_S).status_code)
            refused = httpx.post(url + "/completion", json={"prompt": "a"}, timeout=HANG_S)
            if refused.status_code == 503:
                assert refused.headers["connection"] == "close" and int(refused.headers["retry-after"]) > 0
                states.add("refused")
        except httpx.TransportError:
            break
    for t in threads:
        t.join(HANG_S)
    assert p.wait(HANG_S) == 0
    assert states >= {503, "refused"}
    assert [a.status_code for a in answers] == [200] * 8
    assert all(a.text.endswith("data: [DONE]\n\n") for a in answers)


@pytest.mark.daily  # test_serve_faults has a second signal
def test_a_second_signal_ends_at_once(program: Program) -> None:
    p, url = program("--drain", "1000")
    s = httpx.stream(
        "POST",
        url + "/completion",
        json={"prompt": "Once upon a time", "ignore_eos": True, "stream": True, "n_predict": 1900},
        timeout=HANG_S,
    )
    with s as answer:
        lines = answer.iter_lines()
        assert next(lines)
        p.send_signal(signal.SIGTERM)
        # Two signals at once could count as one.
        wait_until(lambda: httpx.get(url + "/health", timeout=HANG_S).status_code == 503)
        p.send_signal(signal.SIGTERM)
        with suppress(httpx.TransportError):  # the connection has ended before the error was read
            assert '"unavailable_error"' in "".join(lines)
    assert p.wait(HANG_S) == 0


def assert_answers_on(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://x", timeout=HANG_S) as client:
        assert client.get("/health").json() == {"status": "ok"}


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "duo.sock"
    with served({"host": str(path)}, n_ctx=256) as s:
        assert s.url == f"unix:{path}"
        assert_answers_on(path)
    assert not path.exists()


@pytest.mark.daily
def test_a_unix_socket_of_the_program(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "duo.sock"
    p, where = program("--host", str(path))
    assert where == f"unix:{path}"
    assert_answers_on(path)
    p.send_signal(signal.SIGTERM)
    assert p.wait(HANG_S) == 0 and not path.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-m", "/nowhere.gguf"], "nowhere.gguf"),
        (["--temp", "x"], "temperature"),
        (["-np", "99"], "n_parallel"),
        (["--chat-template", "nonsense"], "unknown chat template"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    args: list[str], words: str, run: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = run("serve", "--port", "0", *args)
    assert code == 1 and out == ""
    assert words in err.splitlines()[-1] and "Traceback" not in err


@pytest.mark.daily  # test_serve_router kills a model under its stream
def test_a_server_that_is_killed_under_its_streams_leaves_its_port_free(program: Program) -> None:
    """kill -9: every client sees that its stream has broken off, and the next server has the port at once."""
    p, url = program("-np", "4")
    begun = threading.Barrier(5)

    def read() -> str:
        body = {"prompt": "Once", "n_predict": 1900, "ignore_eos": True, "stream": True}
        try:
            with httpx.stream("POST", url + "/completion", json=body, timeout=HANG_S) as answer:
                chunks = answer.iter_bytes()
                next(chunks)
                begun.wait(HANG_S)
                for _ in chunks:
                    pass
        except httpx.TransportError as e:
            return type(e).__name__
        return "whole"

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        begun.wait(HANG_S)
        p.kill()
        ends = {r.result(HANG_S) for r in readers}
    assert p.wait(HANG_S) == -signal.SIGKILL
    assert ends <= {"RemoteProtocolError", "ReadError"}
    _, again = program("--port", url.rsplit(":", 1)[1])
    assert again == url
    write(url)
