"""Why a host cannot be reached, found out by another connection."""

import gc
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S
from hosts import make_certificate

pytest.importorskip("grpc")

from duo.remote.address import HostAddress
from duo.remote.client.diagnosis import why_unreachable
from duo.remote.security import ClientSecurity


@pytest.mark.parametrize("with_tls", [False, True])
def test_a_connection_that_is_reset_before_tls_begins_is_closed(
    with_tls: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python's SSLSocket stays open then, and warns when it is collected, which fails a test."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(HANG_S)
    real = {name: getattr(ssl.SSLContext, name) for name in ("wrap_socket", "wrap_bio")}

    def late(name: str) -> Any:
        def wrap(*args: Any, **options: Any) -> Any:
            for _ in range(1 if with_tls else 2):  # without, the first connection is only a trial
                s, _ = server.accept()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
                s.close()
            return real[name](*args, **options)

        return wrap

    ca = str(make_certificate(tmp_path, "ours")[0]) if with_tls else None
    for name in real:
        monkeypatch.setattr(ssl.SSLContext, name, late(name))
    with server:
        why, hopeless = why_unreachable(
            HostAddress("127.0.0.1", server.getsockname()[1]), ClientSecurity(ca=ca), HANG_S
        )
    assert not hopeless
    assert why in ("connection reset by peer", "broken pipe" if with_tls else "it does not answer like a duo host")
    gc.collect()
