"""The client side of GGML RPC servers.

libggml-rpc ends the process if a server is lost or is not an RPC server, and waits forever for a silent one. So a child
process asks a server for its devices (`devices_of`), and a model on a server runs in a child process (duo.remote).
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from duo import _core
from duo.build_advice import rebuild
from duo.errors import DuoError, PeerLostError
from duo.placement.devices import Device

TIMEOUT_S = 10.0
# Seconds after which a connection to a machine that is gone (no power, no cable) fails; libggml sets no limit.
_GONE_S = 20


def require_rpc() -> None:
    """Raises DuoError: libggml-rpc is missing."""
    if not _core.supports_rpc():
        raise DuoError(f"this llama-cpp-python was built without RPC; to get it: {rebuild()}")


def split(endpoint: str) -> tuple[str, int]:
    """ "host:port", already checked by the option --rpc."""
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def reach(endpoint: str, timeout_s: float = TIMEOUT_S) -> None:
    """Connects and disconnects. Raises PeerLostError: nobody listens there. A busy server can be reached."""
    host, port = split(endpoint)
    try:
        # As libggml does: the first IPv4 address.
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except (OSError, UnicodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "not a valid host name"
        raise PeerLostError(f"the host of the RPC server {endpoint} is unknown ({why}); check its name") from None
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(timeout_s)
        try:
            s.connect(address)
        except OSError as e:
            why = e.strerror or f"no answer in {timeout_s:g} s"
            raise PeerLostError(
                f"the RPC server {endpoint} cannot be reached ({why[0].lower() + why[1:]}); start duo rpc-server there"
            ) from None


def child_env() -> dict[str, str]:
    """The environment of a child that runs duo: the same modules, but none of this process's options."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
    return {**env, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "GGML_NO_BACKTRACE": "1"}


def reason_of(code: int, stderr: bytes, used: str) -> str:
    """Why a child process that used `used` ended, as a sentence."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    messages = [line.removeprefix("duo: ") for line in lines if line.startswith("duo: ")]
    if messages and code > 0:
        return messages[-1]
    last = f" ({lines[-1]})" if lines else ""
    ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return f"the child process that uses {used} ended with {ending}{last}"


def devices_of(endpoint: str, timeout_s: float = TIMEOUT_S) -> list[Device]:
    """The devices of a server, named as if it were the only one (RPC0, ...).

    Raises PeerLostError: it cannot be reached, does not answer in time or is not an RPC server.
    """
    require_rpc()
    reach(endpoint, timeout_s)
    command = [sys.executable, "-c", "from duo.remote.rpc.server import answer; answer()", endpoint, str(timeout_s)]
    # The child has its own time limit; this one is for a child that hangs.
    limit_s = timeout_s + 20
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False, env=child_env()
        )
    except subprocess.TimeoutExpired:
        raise PeerLostError(silent_sentence(endpoint, limit_s)) from None
    if done.returncode != 0:
        raise PeerLostError(reason_of(done.returncode, done.stderr, f"the RPC server {endpoint}"))
    return [Device(*d) for d in json.loads(done.stdout)]


def devices_of_all(
    endpoints: Iterable[str], timeout_s: float = TIMEOUT_S
) -> Iterator[tuple[str, list[Device] | DuoError]]:
    """Each endpoint with its devices, or with the error. Names are the same as for --rpc with all endpoints."""
    names = list(endpoints)
    answers: dict[str, list[Device] | DuoError] = {}

    def ask(endpoint: str) -> None:
        try:
            answers[endpoint] = devices_of(endpoint, timeout_s)
        except DuoError as e:
            answers[endpoint] = e

    threads = [threading.Thread(target=ask, args=(e,)) for e in names]
    for t in threads:
        t.start()
    n = 0
    for t, endpoint in zip(threads, names, strict=True):
        t.join()
        answer = answers[endpoint]
        if not isinstance(answer, DuoError):
            answer = [d._replace(name=f"RPC{n + i}") for i, d in enumerate(answer)]
            n += len(answer)
        yield endpoint, answer


# ---- in a process that libggml may end


def silent_sentence(endpoint: str, timeout_s: float) -> str:
    return (
        f"the RPC server {endpoint} did not answer in {timeout_s:g} s: it is busy (it serves one program at a time), "
        "frozen, or not an RPC server"
    )


def end_process(sentence: str) -> NoReturn:
    """Ends the process, even if a thread is in libggml."""
    with suppress(OSError):
        os.write(2, f"duo: {sentence}\n".encode())
    os._exit(1)


@contextmanager
def deadline(timeout_s: float, sentence: str) -> Iterator[None]:
    """Ends the process with the sentence if the body, a call of libggml, takes longer."""
    timer = threading.Timer(timeout_s, end_process, (sentence,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def connect(endpoints: Iterable[str], timeout_s: float = TIMEOUT_S) -> list[str]:
    """Registers the servers' devices in this process and returns their names, in order.

    Raises PeerLostError: a server cannot be reached. A server that does not answer in time ends the process, and so
    does a server that is lost later.
    """
    require_rpc()
    names = []
    for endpoint in endpoints:
        reach(endpoint, timeout_s)
        with deadline(timeout_s, silent_sentence(endpoint, timeout_s)):
            names += _core.rpc_connect(endpoint)
    return names


def _same_socket(fd: int) -> socket.socket:
    """A socket object with a descriptor of its own. Raises OSError: `fd` is no socket, or another thread closed it."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):  # a copy would keep a pipe open for its reader
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def guard_connections(ports: Iterable[int], *, listening: bool = False) -> int:
    """Makes TCP connections of this process to these ports fail if the other machine is gone. Returns their number.

    listening: does it for sockets that listen on these ports; their connections inherit it.
    """
    port_set, n = set(ports), 0
    try:
        fds = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:  # the system has no /dev/fd
        return 0
    for fd in fds:
        with suppress(OSError), _same_socket(fd) as s:
            if s.family != socket.AF_INET or s.type != socket.SOCK_STREAM:
                continue
            if bool(s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) != listening:
                continue
            if (s.getsockname() if listening else s.getpeername())[1] not in port_set:
                continue
            s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (
                ("TCP_KEEPIDLE", _GONE_S // 2),
                ("TCP_KEEPINTVL", _GONE_S // 4),
                ("TCP_KEEPCNT", 2),
                ("TCP_USER_TIMEOUT", _GONE_S * 1000),
            ):
                if hasattr(socket, name):
                    s.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            n += 1
    return n


def answer() -> None:
    """The child process of devices_of: takes an endpoint, prints its devices."""
    endpoint, timeout_s = sys.argv[1], float(sys.argv[2])
    _core.log_to(True, b"")
    with deadline(timeout_s, silent_sentence(endpoint, timeout_s)):
        try:
            names = connect([endpoint], timeout_s)
        except DuoError as e:
            end_process(str(e))
        devices = [Device(name, endpoint, "rpc", *_core.rpc_memory(name)) for name in names]
    print(json.dumps(devices), flush=True)
    os._exit(0)
