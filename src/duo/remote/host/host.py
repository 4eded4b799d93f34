"""The server of a host: one model, one address, until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from duo import _core
from duo.errors import BadValueError
from duo.remote.address import HostAddress
from duo.remote.host.service import HANDSHAKE_S, IDLE_S, HostService
from duo.remote.security import ServerSecurity
from duo.remote.wire.codec_begin import n_message_most
from duo.remote.wire.identity import Identity
from duo.remote.wire.methods import add_to_server

GRACE_S = 1.0
END_S = 20.0  # after the signal the process ends, even if something hangs


@dataclass(frozen=True)
class HostSettings:
    """The address and limits of a host."""

    address: HostAddress
    security: ServerSecurity
    idle_s: float = IDLE_S
    handshake_s: float = HANDSHAKE_S


def server_options(n_ctx: int) -> list[tuple[str, int]]:
    """gRPC's own limits, for each connection."""
    return [
        ("grpc.max_receive_message_length", n_message_most(n_ctx)),
        ("grpc.max_concurrent_streams", 16),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_connection_idle_ms", 120_000),
        ("grpc.keepalive_time_ms", 15_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A peer that does not read keeps its stream until its connection ends. Texts continue on a new connection.
        ("grpc.max_connection_age_ms", 3_600_000),
        ("grpc.max_connection_age_grace_ms", 600_000),
        ("grpc.so_reuseport", 0),  # a second host on the same port is an error
    ]


class Host:
    """A server for one service. Start and stop it in the same event loop."""

    def __init__(self, settings: HostSettings, service: HostService, *, n_ctx: int, n_seats: int) -> None:
        self._settings, self.service = settings, service
        self._server = grpc.aio.server(options=server_options(n_ctx), maximum_concurrent_rpcs=32 + 4 * n_seats)
        add_to_server(service, self._server)
        self._socket: tuple[int, int] | None = None  # the socket file that this host has created

    async def start(self) -> HostAddress:
        """Listens. Returns the address, with the chosen port if it was 0. Raises BadValueError."""
        address, credentials = self._settings.address, self._settings.security.credentials()
        if address.path:
            _make_way(address.path)
        # Other users must not connect, not even between bind and chmod.
        mask = os.umask(0o177) if address.path else None
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address.target)
            else:
                port = self._server.add_secure_port(address.target, credentials)
        except RuntimeError:
            raise BadValueError(
                f"the host cannot listen on {address}; it is in use or not an address of this machine, choose another"
            ) from None
        finally:
            if mask is not None:
                os.umask(mask)
        await self._server.start()
        if address.path:
            self._socket = _file_id(address.path)
        return address if address.path else HostAddress(host=address.host, port=port)

    async def stop(self) -> None:
        """Ends all texts and the model's thread."""
        await self._server.stop(GRACE_S)
        await self.service.close()
        path = self._settings.address.path
        if self._socket is not None and _file_id(path) == self._socket:  # still the same file
            with suppress(OSError):
                os.unlink(path)


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        s = os.lstat(path)
    except OSError:
        return None
    return s.st_dev, s.st_ino


def _make_way(path: str) -> None:
    """Removes the socket of a killed host. Raises BadValueError: the path is in use or cannot be used.

    gRPC itself would also remove the socket of a running host.
    """
    cannot = f"the host cannot listen on unix:{path}"
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path)):
            raise BadValueError(f"{cannot}; there is no folder {os.path.dirname(path)}") from None
        return
    except OSError as e:
        raise BadValueError(f"{cannot} ({e.strerror}); choose another path") from None
    if not is_socket:
        raise BadValueError(f"{cannot}; a file with that name exists, choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        try:
            s.connect(path)
        except ConnectionRefusedError:
            with suppress(OSError):
                os.unlink(path)
            return
        except OSError as e:
            raise BadValueError(f"{cannot} ({e.strerror or e}); choose another path") from None
    raise BadValueError(f"{cannot}; another process listens there, choose another path")


async def _until_signal(host: Callable[[], Host], ready: Callable[[HostAddress], None], last: threading.Timer) -> None:
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Clients get their own errors. Logging them would let clients fill a disk, or a pipe that nobody reads.
    loop.set_exception_handler(lambda _loop, _context: None)
    for name in ("asyncio", "grpc"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    def end() -> None:
        if not asked_to_end.is_set():
            asked_to_end.set()
            last.start()

    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, end)
    server = host()
    try:
        ready(await server.start())
        await asked_to_end.wait()
    finally:
        await server.stop()


def serve(
    role: str,
    options: _core.ModelOptions,
    settings: HostSettings,
    *,
    ready: Callable[[HostAddress, _core.SharedModel], None],
    progress: Callable[[str, float], None] | None = None,
) -> None:
    """Loads the model and serves it until SIGTERM or SIGINT. role: "draft" or "verify". Raises DuoError."""
    settings.security.credentials()  # reports a bad value before minutes of loading
    model = _core.SharedModel(options, role == "draft", progress)
    served = _core.DraftHost(model) if role == "draft" else _core.VerifyHost(model)

    def host() -> Host:
        service = HostService(
            role,
            Identity.of(Path(model.path).name, model.vocabulary),
            model.vocabulary,
            served,
            token=settings.security.token,
            idle_s=settings.idle_s,
            handshake_s=settings.handshake_s,
        )
        return Host(settings, service, n_ctx=served.n_ctx, n_seats=len(served.seats))

    last = threading.Timer(END_S, os._exit, (1,))
    last.daemon = True
    try:
        asyncio.run(_until_signal(host, lambda address: ready(address, model), last))
    finally:
        served.close()
        last.cancel()
