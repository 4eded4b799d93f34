"""Authentication: certificates, the token, and the rule that a host is not open to strangers by accident."""

from __future__ import annotations

import hmac
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from duo.errors import BadValueError
from duo.remote.address import HostAddress

TOKEN_KEY = "duo-token"
N_TOKEN_MIN, N_TOKEN_MAX = 16, 4096  # bytes


def _read(path: str | os.PathLike[str], what: str) -> bytes:
    """what: names the file in the error message. Raises BadValueError."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        raise BadValueError(f"{what} cannot be read ({getattr(e, 'strerror', e)})") from None


def read_token(path: str | os.PathLike[str]) -> bytes:
    """The token in a file, without surrounding white space. Raises BadValueError."""
    what = f"the token file {os.fspath(path)} (--token-file)"
    data = _read(path, what).strip()
    if not N_TOKEN_MIN <= len(data) <= N_TOKEN_MAX or any(not 0x21 <= b < 0x7F for b in data):
        raise BadValueError(
            f"{what} must contain one word of {N_TOKEN_MIN} to {N_TOKEN_MAX} ASCII "
            "characters; create one with: openssl rand -hex 32"
        )
    return data


def same_token(expected: bytes, token: str | bytes) -> bool:
    """Constant-time comparison."""
    return hmac.compare_digest(expected, token.encode("utf-8", "replace") if isinstance(token, str) else token)


def _read_pem(path: str, option: str) -> bytes:
    data = _read(path, f"{path} ({option})")
    if b"-----BEGIN " not in data:
        raise BadValueError(f"{path} ({option}) is not a PEM file; convert it with openssl")
    return data


def _check_pair(cert: str, key: str, options: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as e:
        why = getattr(e, "reason", None) or str(e)
        raise BadValueError(f"the certificate {cert} and the key {key} ({options}) do not match ({why})") from None


def _check_ca(ca: str, option: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except (ssl.SSLError, OSError) as e:
        raise BadValueError(f"{ca} ({option}) contains no usable certificate ({e})") from None


@dataclass(frozen=True)
class ServerSecurity:
    """What a host requires of its clients."""

    cert: str | None = None
    key: str | None = None
    ca: str | None = None  # of the clients: they must present a certificate too
    token: bytes | None = None

    @property
    def words(self) -> str:
        """A short description, for the line with the host's address."""
        tls = "TLS" if self.cert else "no TLS"
        return f"{tls}, {'client certificates, ' * bool(self.ca)}{'token' if self.token else 'no token'}"

    def check(self, address: HostAddress, *, insecure: bool) -> None:
        """Raises BadValueError: strangers could connect, or one of two options is missing."""
        if (self.cert is None) != (self.key is None):
            raise BadValueError("--tls-cert and --tls-key belong together; give both")
        if self.ca is not None and self.cert is None:
            raise BadValueError(
                "--tls-ca requires client certificates, which needs TLS; give --tls-cert and --tls-key too"
            )
        if not address.is_local and not insecure and not (self.cert and self.token):
            raise BadValueError(
                f"other machines can reach {address}; give --tls-cert, --tls-key and --token-file, "
                "or --insecure if you trust the network"
            )

    def credentials(self) -> grpc.ServerCredentials | None:
        """None: no TLS. Raises BadValueError."""
        if self.cert is None or self.key is None:
            return None
        pair = (_read_pem(self.key, "--tls-key"), _read_pem(self.cert, "--tls-cert"))
        _check_pair(self.cert, self.key, "--tls-cert, --tls-key")
        ca = None
        if self.ca is not None:
            ca = _read_pem(self.ca, "--tls-ca")
            _check_ca(self.ca, "--tls-ca")
        return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


@dataclass(frozen=True)
class ClientSecurity:
    """How a client authenticates its host and itself."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token: bytes | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise BadValueError("host_cert (--host-cert) and host_key (--host-key) belong together; give both")
        if self.cert is not None and self.ca is None:
            raise BadValueError(
                "host_cert (--host-cert) needs host_ca (--host-ca), the certificate that verifies the host"
            )
        if self.ca is not None:
            self.credentials()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_KEY, self.token.decode("ascii")),) if self.token else ()

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None: no TLS. Raises BadValueError."""
        if self.ca is None:
            return None
        roots = _read_pem(self.ca, "--host-ca")
        _check_ca(self.ca, "--host-ca")
        if self.cert is None or self.key is None:
            return grpc.ssl_channel_credentials(roots)
        pair = (_read_pem(self.key, "--host-key"), _read_pem(self.cert, "--host-cert"))
        _check_pair(self.cert, self.key, "--host-cert, --host-key")
        return grpc.ssl_channel_credentials(roots, *pair)

    def ssl_context(self) -> ssl.SSLContext:
        """The same settings for Python's own TLS, which reports why a handshake failed."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None and self.key is not None:
            context.load_cert_chain(self.cert, self.key)
        return context
