"""Where the server listens, and who may come: addresses, Unix sockets, certificates."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
from contextlib import suppress
from dataclasses import dataclass

from duo.errors import BadValueError
from duo.options.serve import ServeOptions
from duo.support.comma_separated import comma_separated

N_WAITING = 1024  # connections that the system keeps until the server takes them


@dataclass(frozen=True)
class ListeningSocket:
    """A socket that listens."""

    socket: socket.socket
    path: str = ""  # of a Unix socket

    def url(self, scheme: str) -> str:
        if self.path:
            return f"unix:{self.path}"
        host, port = self.socket.getsockname()[:2]
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        self.socket.close()
        if self.path:
            with suppress(OSError):
                os.unlink(self.path)


def is_path(host: str) -> bool:
    return host.startswith(("unix:", "/")) or host.endswith(".sock")


def is_loopback_address(host: str) -> bool:
    """Whether a name or an address, without brackets, is this machine's own."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return is_path(host) or is_loopback_address(host.strip("[]"))


def openness(o: ServeOptions, *, has_keys: bool) -> str | None:
    """A warning: other machines may use the server, and nothing says that this is wanted."""
    others = [h for h in hosts_of(o["host"]) if not is_loopback(h)]
    if not others or has_keys or o["insecure"]:
        return None
    return (
        f"--host {others[0]} without a key: everybody who reaches the port can use the model; give --api-key, or "
        "--insecure if the network is trusted; a proxy that passes on its clients' names needs --allowed-hosts"
    )


def hosts_of(host: str) -> list[str]:
    hosts = comma_separated(host)
    if not hosts:
        raise BadValueError("--host names no address; leave it out, or give one")
    return hosts


def listeners(o: ServeOptions) -> list[ListeningSocket]:
    """Raises BadValueError: an address cannot be used."""
    sockets: list[ListeningSocket] = []
    try:
        for host in hosts_of(o["host"]):
            if is_path(host):
                sockets.append(_unix(host.removeprefix("unix:")))
            else:
                sockets.append(_tcp(host.strip("[]"), o["port"], shared=o["reuse_port"]))
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _tcp(host: str, port: int, *, shared: bool) -> ListeningSocket:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]
        # asyncio sets TCP_NODELAY only if it knows that the protocol is TCP; without it tokens wait up to 40 ms.
        s = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as e:
        raise BadValueError(f"the server cannot listen on {host} ({getattr(e, 'strerror', e)}); check --host") from None
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared and (option := getattr(socket, "SO_REUSEPORT", None)) is not None:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind(address)
        s.listen(N_WAITING)
        s.setblocking(False)
    except OSError as e:
        s.close()
        raise BadValueError(
            f"the server cannot listen on {host} port {port} ({e.strerror}); choose another --port"
        ) from None
    return ListeningSocket(s)


def _unix(path: str) -> ListeningSocket:
    cannot = f"the server cannot listen on the Unix socket {path}"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise BadValueError(f"{cannot}; a file with that name exists, choose another path")
            _remove_dead(path, cannot)
        s.bind(path)
        os.chmod(path, 0o600)
        s.listen(N_WAITING)
        s.setblocking(False)
    except OSError as e:
        s.close()
        raise BadValueError(f"{cannot} ({e.strerror or e}); choose another path") from None
    except BaseException:
        s.close()
        raise
    return ListeningSocket(s, path)


def _remove_dead(path: str, cannot: str) -> None:
    """The socket of a server that was killed stays behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        try:
            s.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise BadValueError(f"{cannot}; another process listens there, choose another path")


def check_tls(o: ServeOptions) -> None:
    """Raises BadValueError: the certificate and its key cannot be used."""
    cert, key = o["ssl_cert_file"], o["ssl_key_file"]
    if (cert is None) != (key is None):
        raise BadValueError("--ssl-key-file and --ssl-cert-file belong together; give both")
    if cert is None or key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as e:
        why = getattr(e, "reason", None) or getattr(e, "strerror", None) or str(e)
        raise BadValueError(
            f"the certificate {cert} with the key {key} cannot be used ({why}); check both files"
        ) from None
