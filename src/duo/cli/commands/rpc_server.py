"""`duo rpc-server`: this machine's devices for llama.cpp programs elsewhere, duo among them."""

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
from platformdirs import user_cache_path

from duo import _core
from duo.cli import show
from duo.errors import DuoError
from duo.placement.cpus import usable_cores
from duo.remote.rpc.server import guard_connections, require_rpc

HELP = """Serve this machine's devices over GGML RPC.

For duo --rpc, and for llama.cpp's own programs of the same version; one program at a time. Nothing of it is
authenticated or encrypted: keep it on loopback and reach it through a tunnel (ssh -L), or use duo draft-host.

\b
Examples:
  duo rpc-server
  duo rpc-server -d CUDA0 -p 50053 -c
"""


def ipv4(host: str) -> str:
    """The address that libggml, which knows IPv4 only, can listen at. Raises DuoError."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as e:
        why = getattr(e, "strerror", None) or "not a host name"
        raise DuoError(f"the host {host!r} (-H) has no IPv4 address ({why}); give one of this machine's") from None


def claim(host: str, port: int) -> socket.socket:
    """A socket bound to the port (0: a free one), not listening. Raises DuoError for one that is not to be had."""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind((host, port))
    except OSError as e:
        s.close()
        raise DuoError(
            f"{host}:{port} cannot be listened at ({e.strerror}); choose another port (-p, 0: a free one) or host (-H)"
        ) from None
    return s


def cache_dir() -> Path:
    """Where llama.cpp's own server keeps weights. Raises DuoError."""
    path = Path(os.environ.get("LLAMA_CACHE") or user_cache_path("llama.cpp", appauthor=False)) / "rpc"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DuoError(f"the cache {path} cannot be made ({e.strerror}); set LLAMA_CACHE or leave out -c") from None
    return path


def serve(endpoint: str, cache: bytes, n_threads: int, devices: list[str]) -> int:
    """Until a signal comes: returns the exit code. Raises DuoError."""
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
@click.option("-H", "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Listen at this address.")
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    default=50052,
    show_default=True,
    metavar="N",
    help="Listen at this port; 0: a free one.",
)
@click.option(
    "devices", "-d", "--device", metavar="DEV,DEV", help="Devices to serve. Default: every GPU, else the CPU."
)
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(1, 512),
    metavar="N",
    help="CPU threads, for the CPU as a device. Default: the cores.",
)
@click.option("-c", "--cache", is_flag=True, help="Keep weights on disk here: a client then sends them once.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine: the network is trusted.")
def rpc_server(host: str, port: int, devices: str | None, threads: int | None, cache: bool, insecure: bool) -> None:
    require_rpc()
    names = [d for d in re.split("[,/]", devices or "") if d]
    address = ipv4(host)
    local = ipaddress.ip_address(address).is_loopback
    if not local and not insecure:
        raise DuoError(
            f"GGML RPC has no authentication and {address} (-H) can be reached from other machines; listen at "
            "127.0.0.1 and tunnel it (ssh -L), or give --insecure if the network is trusted"
        )
    weights = os.fsencode(cache_dir()) if cache else b""
    held = claim(address, port)
    endpoint = f"{address}:{held.getsockname()[1]}"
    if sys.platform != "linux":  # there libggml could not bind beside it
        held.close()
    if not local:
        show.warn(
            f"GGML RPC has no authentication and no encryption: whoever reaches {endpoint} controls this process; "
            "listen at 127.0.0.1 and tunnel it (ssh -L), or use duo draft-host"
        )
    sys.stdout.flush()
    _core.log_to(True, b"")
    code = serve(endpoint, weights, threads or usable_cores(), names)
    sys.stdout.flush()
    os._exit(code)  # a thread is in libggml, which knows no end
