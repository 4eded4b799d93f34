"""Why a host cannot be reached, in words: gRPC only says that it cannot."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from duo.remote.address import Address
from duo.remote.security import ClientSecurity


def _connect(address: Address, timeout_s: float) -> socket.socket:
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


def _speaks_tls(address: Address, timeout_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with _connect(address, timeout_s) as raw, context.wrap_socket(raw):
            return True
    except (OSError, ValueError):
        return False


def why_unreachable(address: Address, security: ClientSecurity, timeout_s: float = 1.0) -> tuple[str, bool]:
    """(the reason, whether trying again is useless until somebody changes something). Takes a few time-outs at most."""
    try:
        raw = _connect(address, timeout_s)
    except TimeoutError:
        return "it does not answer", False
    except OSError as e:
        return (e.strerror or str(e)).lower(), False
    with raw:
        if security.ca is None:
            if _speaks_tls(address, timeout_s):
                return "it speaks TLS; give the certificate to know it by (--host-ca)", True
            return "it does not answer as a duo host", False
        context = security.ssl_context()
        context.set_alpn_protocols(["h2"])
        try:
            # With TLS 1.3 a refused client certificate is told with the first bytes.
            with context.wrap_socket(raw, server_hostname=address.host or "localhost") as s, suppress(TimeoutError):
                s.recv(1)
            return "it does not answer as a duo host", False
        except ssl.SSLCertVerificationError as e:
            return f"its certificate is not trusted: {e.verify_message}".rstrip("."), True
        except ssl.SSLError as e:
            reason = (e.reason or str(e)).lower().replace("_", " ")
            if "wrong version" in reason or "record layer" in reason or "packet length" in reason:
                return "it does not speak TLS; leave out --host-ca or start it with --tls-cert", True
            return f"TLS failed: {reason}", "certificate" in reason
        except TimeoutError:
            return "it does not answer", False
        except OSError as e:
            return (e.strerror or str(e)).lower(), False
