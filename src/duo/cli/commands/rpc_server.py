"""`duo rpc-server`: serves the devices of this machine to llama.cpp programs on others, including duo."""

from __future__ import annotations

import ipaddress
import os
import queue
import re
import signal
import socket
import sys
import threading
from pathlib import Path

import click

from duo.cli import show
from duo.errors import BadValueError, DuoError
from duo.support.home import below_home

HELP = """Serve this machine's devices over GGML RPC.

It serves duo --rpc and llama.cpp's own programs of the same version, one program at a time. The protocol has no
authentication and no encryption: listen on loopback and use a tunnel (ssh -L), or use duo draft-host.

\b
Examples:
  duo rpc-server
  duo rpc-server -d CUDA0 -p 50053 -c
"""


def ipv4(host: str) -> str:
    """The IPv4 address of a host; libggml supports only IPv4. Raises BadValueError."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as e:
        why = getattr(e, "strerror", None) or "not a host name"
        raise BadValueError(
            f"the host {host!r} (-H) has no IPv4 address ({why}); give an address of this machine"
        ) from None


def claim(host: str, port: int) -> socket.socket:
    """A socket bound to the port (0: any free one), not listening. Raises BadValueError: the port is not available."""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind((host, port))
    except OSError as e:
        s.close()
        raise BadValueError(
            f"cannot listen on {host}:{port} ({e.strerror}); choose another port (-p, 0: any free one) or host (-H)"
        ) from None
    return s


def cache_dir() -> Path:
    """The folder where llama.cpp's own server caches weights. Raises DuoError."""
    from platformdirs import user_cache_path

    own = os.environ.get("LLAMA_CACHE")
    path = (Path(own) if own else below_home(lambda: user_cache_path("llama.cpp", appauthor=False))) / "rpc"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DuoError(f"cannot create the cache {path} ({e.strerror}); set LLAMA_CACHE or leave out -c") from None
    return path


def serve(endpoint: str, cache: bytes, n_threads: int, devices: list[str]) -> int:
    """Serves until a signal arrives. Returns the exit code. Raises DuoError."""
    from duo import _core
    from duo.remote.rpc.server import guard_connections

    events: queue.SimpleQueue[int | DuoError] = queue.SimpleQueue()

    def run() -> None:
        try:
            _core.rpc_serve(endpoint, cache, n_threads, devices)
        except DuoError as e:
            events.put(e)

    def on_signal(number: int, _frame: object) -> None:
        events.put(130 if number == signal.SIGINT else 0)

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    threading.Thread(target=run, daemon=True).start()
    guarded = False
    while True:
        try:
            event = events.get(timeout=None if guarded else 0.1)
        except queue.Empty:
            guarded = guard_connections([int(endpoint.rpartition(":")[2])], listening=True) > 0
            continue
        if isinstance(event, DuoError):
            raise event
        return event


@click.command("rpc-server", help=HELP)
@click.option("-H", "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Listen on this address.")
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    default=50052,
    show_default=True,
    metavar="N",
    help="Listen on this port; 0: any free port.",
)
@click.option(
    "devices", "-d", "--device", metavar="DEV,DEV", help="Devices to serve. Default: every GPU; without a GPU, the CPU."
)
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(1, 512),
    metavar="N",
    help="CPU threads of the CPU device. Default: one per core.",
)
@click.option("-c", "--cache", is_flag=True, help="Cache weights on disk, so that a client sends them only once.")
@click.option("--insecure", is_flag=True, help="Allow addresses that other machines can reach, on a trusted network.")
def rpc_server(host: str, port: int, devices: str | None, threads: int | None, cache: bool, insecure: bool) -> None:
    from duo import _core
    from duo.placement.cpus import usable_cores
    from duo.remote.rpc.server import require_rpc

    require_rpc()
    names = [d for d in re.split("[,/]", devices or "") if d]
    address = ipv4(host)
    local = ipaddress.ip_address(address).is_loopback
    if not local and not insecure:
        raise BadValueError(
            f"GGML RPC has no authentication, and other machines can reach {address} (-H); listen on 127.0.0.1 and "
            "use a tunnel (ssh -L), or give --insecure if you trust the network"
        )
    weights = os.fsencode(cache_dir()) if cache else b""
    held = claim(address, port)
    endpoint = f"{address}:{held.getsockname()[1]}"
    if sys.platform != "linux":  # only Linux lets libggml bind the same port
        held.close()
    if not local:
        show.warn(
            f"GGML RPC has no authentication and no encryption: anyone who can reach {endpoint} controls this process; "
            "listen on 127.0.0.1 and use a tunnel (ssh -L), or use duo draft-host"
        )
    sys.stdout.flush()
    _core.log_to(True, b"")
    code = serve(endpoint, weights, threads or usable_cores(), names)
    sys.stdout.flush()
    os._exit(code)  # a thread is still in libggml, which cannot be stopped
