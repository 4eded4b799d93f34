"""Finds out why a host cannot be reached: gRPC does not say why."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from duo.remote.address import HostAddress
from duo.remote.security import ClientSecurity

T = TypeVar("T")


def _connect(address: HostAddress, timeout_s: float) -> socket.socket:
    if address.host:
        return socket.create_connection((address.host, address.port), timeout_s)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(timeout_s)
        s.connect(address.path)
    except BaseException:
        s.close()
        raise
    return s


class _Tls:
    """TLS over a connected socket, which stays the caller's to close. Raises OSError and ValueError.

    Python's SSLSocket takes the socket over, and leaves it open if the peer resets it at that moment.
    """

    def __init__(self, context: ssl.SSLContext, raw: socket.socket, name: str | None = None) -> None:
        self._raw = raw
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=name)
        self._finish(self._tls.do_handshake)

    def read(self, n: int) -> bytes:
        return self._finish(lambda: self._tls.read(n))

    def _finish(self, step: Callable[[], T]) -> T:
        """Repeats the step until it needs no more bytes of the peer."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                if data := self._to_send.read():  # after a failure it is an alert
                    self._raw.sendall(data)
            if data := self._raw.recv(65536):
                self._received.write(data)
            else:
                self._received.write_eof()


def _speaks_tls(address: HostAddress, timeout_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with _connect(address, timeout_s) as raw:
            _Tls(context, raw)
            return True
    except (OSError, ValueError):
        return False


def _after_handshake(s: _Tls) -> tuple[str, bool]:
    """With TLS 1.3 the server refuses a client's certificate after the client's handshake; otherwise HTTP/2 starts."""
    try:
        silent = s.read(1) == b""
    except TimeoutError:
        return "it does not answer", False
    except OSError:
        silent = True
    if silent:
        return "it refused the certificate of this machine, or requires one: --host-cert, --host-key", True
    return "it does not answer like a duo host", False


def _reason(e: OSError | ValueError) -> tuple[str, bool]:
    if isinstance(e, OSError):
        return (e.strerror or str(e)).lower(), False
    return "its name is not a valid host name", True


def why_unreachable(address: HostAddress, security: ClientSecurity, timeout_s: float = 1.0) -> tuple[str, bool]:
    """(the reason, whether trying again is useless until somebody changes something). Takes a few times `timeout_s`."""
    try:
        raw = _connect(address, timeout_s)
    except TimeoutError:
        return "it does not answer", False
    except (OSError, UnicodeError) as e:
        return _reason(e)
    with raw:
        if security.ca is None:
            if _speaks_tls(address, timeout_s):
                return "it uses TLS; give the certificate that verifies it (--host-ca)", True
            return "it does not answer like a duo host", False
        try:
            context = security.ssl_context()
            context.set_alpn_protocols(["h2"])
            return _after_handshake(_Tls(context, raw, address.host or "localhost"))
        except ssl.SSLCertVerificationError as e:
            return f"its certificate is not trusted: {e.verify_message}".rstrip("."), True
        except ssl.SSLError as e:
            code = e.reason or ""  # OpenSSL's, such as WRONG_VERSION_NUMBER
            if any(part in code for part in ("WRONG_VERSION", "RECORD_LAYER", "PACKET_LENGTH")):
                return "it does not use TLS; leave out --host-ca or start it with --tls-cert", True
            return f"TLS failed: {(code or str(e)).lower().replace('_', ' ')}", "CERTIFICATE" in code
        except TimeoutError:
            return "it does not answer", False
        except (OSError, ValueError) as e:
            return _reason(e)
