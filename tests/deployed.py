"""The files of deploy/, with addresses and paths of this machine, and the programs that read them."""

from __future__ import annotations

import os
import re
import shlex
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import httpx
from conftest import HANG_S
from hosts import make_certificate
from needs import lacks, need_program
from ports import free_port

DEPLOY = Path(__file__).parents[1] / "deploy"
START_S = 4 * HANG_S  # LiteLLM's imports take ten seconds of processor time


def file(name: str) -> str:
    return (DEPLOY / name).read_text("utf-8")


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Each pattern must be there."""
    for pattern, new in pairs:
        text, n = re.subn(pattern, lambda _, new=new: new, text, flags=re.MULTILINE)  # type: ignore[misc]
        assert n, f"there is no {pattern}"
    return text


@contextmanager
def running(
    command: Sequence[str | Path],
    is_ready: Callable[[], bool],
    *,
    env: Mapping[str, str] | None = None,
    within: float = HANG_S,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program until SIGTERM; what it says goes to the report of a failure."""
    with TemporaryFile() as said:
        p = subprocess.Popen(
            [str(x) for x in command],
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
        )  # fmt: skip
        try:
            until = time.monotonic() + within
            while not is_ready():
                if p.poll() is not None or time.monotonic() > until:
                    said.seek(0)
                    raise AssertionError(said.read().decode("utf-8", "replace")[-3000:])
                time.sleep(0.05)
            yield p
        finally:
            p.terminate()
            try:
                p.wait(HANG_S)
            except subprocess.TimeoutExpired:
                p.kill()
                raise


def answers(url: str, **more: Any) -> bool:
    """Whether somebody speaks HTTP there."""
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=HANG_S, **more).status_code > 0
    return False


class Balancer:
    """A program in front of replicas. headers: what its clients must send."""

    def __init__(self, url: str, *, verify: ssl.SSLContext | bool = True, key: str = "") -> None:
        self.url = url
        self.more: dict[str, Any] = {"verify": verify, "headers": {"Authorization": f"Bearer {key}"} if key else {}}

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=HANG_S, **self.more)

    def post(self, body: Any, **headers: str) -> httpx.Response:
        more = {**self.more, "headers": {**self.more["headers"], **headers}}
        return httpx.post(self.url + "/v1/chat/completions", json=body, timeout=HANG_S, **more)

    def stream(self, body: Any) -> Any:
        return httpx.stream(
            "POST", self.url + "/v1/chat/completions", json={**body, "stream": True}, timeout=HANG_S, **self.more
        )


def _hosts(urls: Sequence[str]) -> list[str]:
    return [u.removeprefix("http://") for u in urls]


def program_of(balancer: str) -> str:
    """What starts it: a program, or the Python that has it."""
    if balancer in ("nginx", "haproxy"):
        return need_program(balancer, balancer)
    if balancer == "litellm":
        return str(Path(python_with("litellm", "DUO_TEST_LITELLM")).with_name("litellm"))
    return python_with("sglang-router", "DUO_TEST_SGLANG_ROUTER")


def python_with(program: str, variable: str) -> str:
    """LiteLLM and sglang-router want other versions than duo, so `make test-daily` makes an environment for them inside
    duo's own. The variable may name the Python of another one."""
    named = os.environ.get(variable)
    for python in [Path(named)] if named else [Path(sys.executable), Path(sys.prefix) / "others/bin/python"]:
        if python.with_name(program).exists():
            return str(python)
    lacks(program)


@contextmanager
def nginx(folder: Path, urls: Sequence[str]) -> Iterator[Balancer]:
    program = program_of("nginx")
    port = free_port()
    authority = make_certificate(folder, "authority")
    cert, key = make_certificate(folder, "nginx", authority)
    conf = folder / "nginx.conf"
    conf.write_text(
        replaced(
            file("nginx.conf"),
            (r"/tmp/", f"{folder}/"),
            (r"^ +server duo:8080 (.*);$", "\n".join(f"server {h} max_fails=1 fail_timeout=2s;" for h in _hosts(urls))),
            (r"listen 8443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
            (r"/run/secrets/tls_cert", str(cert)),
            (r"/run/secrets/tls_key", str(key)),
            (r"worker_processes auto;", "worker_processes 1;" + (" user root;" if os.geteuid() == 0 else "")),
        )
    )
    context = ssl.create_default_context(cafile=authority[0])
    url = f"https://127.0.0.1:{port}"
    command = [program, "-p", folder, "-c", conf, "-g", "daemon off;"]
    with running(command, lambda: answers(url + "/livez", verify=context)):
        yield Balancer(url, verify=context)


@contextmanager
def haproxy(folder: Path, urls: Sequence[str]) -> Iterator[Balancer]:
    program = program_of("haproxy")
    port = free_port()
    conf = folder / "haproxy.cfg"
    hosts = _hosts(urls)
    conf.write_text(
        replaced(
            file("haproxy.cfg"),
            (r"bind :8081", f"bind 127.0.0.1:{port}"),
            (r"duo1:8080", hosts[0]),
            (r"duo2:8080", hosts[1]),
            (r"^global$", f"global\n    stats socket {folder}/haproxy.sock"),
        )
    )
    url = f"http://127.0.0.1:{port}"
    with running([program, "-db", "-f", conf], lambda: answers(url + "/livez")):
        yield Balancer(url)


def states_of_haproxy(folder: Path) -> dict[str, str]:
    """UP or DOWN by server, as HAProxy's own checks have found it."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"{folder}/haproxy.sock")
        s.sendall(b"show stat\n")
        said = b""
        while data := s.recv(65536):
            said += data
    rows = [line.split(",") for line in said.decode().splitlines() if line.startswith("duo,duo")]
    return {row[1]: row[17] for row in rows}


@contextmanager
def litellm(folder: Path, urls: Sequence[str]) -> Iterator[Balancer]:
    program = program_of("litellm")
    port = free_port()
    env = {"DUO_1": urls[0] + "/v1", "DUO_2": urls[1] + "/v1", "DUO_KEY": "none", "LITELLM_MASTER_KEY": "sk-test",
           "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(folder)}  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    command = [program, "--config", DEPLOY / "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with running(command, lambda: answers(url + "/health/liveliness"), env=env, within=START_S):
        yield Balancer(url, key="sk-test")


@contextmanager
def sglang(_folder: Path, urls: Sequence[str]) -> Iterator[Balancer]:
    """sglang-router has no file here, because a command line is enough (deploy/README.md)."""
    python = program_of("sglang")
    port, other = free_port(), free_port()
    (line,) = (x for x in file("README.md").splitlines() if x.startswith("python -m sglang_router.launch_router "))
    line = replaced(line, ("http://duo1:8080 http://duo2:8080", " ".join(urls)), ("--port 8082", f"--port {port}"))
    command = [python, *shlex.split(line)[1:], "--prometheus-port", str(other)]
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(url + "/v1/models") and httpx.get(url + "/v1/models").status_code == 200):
        yield Balancer(url)
