"""Pictures that requests name: data: URLs always, files and addresses only if the server's options say so."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from duo.chat.pictures import data_url, decoded, is_picture
from duo.errors import BadValueError
from duo.support.picture_file import N_BYTES_MOST
from duo.support.wording import quoted

TIMEOUT_S = 10.0  # for a picture, with all redirections
N_HOPS = 3  # redirections


@dataclass(frozen=True)
class Media:
    """What the server may fetch."""

    folder: Path | None = None  # file: URLs name files in it (--media-path)
    urls: bool = False  # http: and https: are fetched (--media-url)

    def file(self, url: str) -> bytes:
        """The file that a URL names. Raises BadValueError."""
        scheme = url[:8].partition(":")[0].lower()
        if scheme == "data":
            return data_url(url)
        if scheme == "file":
            return self._local(url)
        if scheme in ("http", "https"):
            if not self.urls:
                raise BadValueError(
                    "this server fetches no pictures; send them as data: URLs (or start it with --media-url)"
                )
            return _fetched(url)
        if "://" in url[:32]:
            raise BadValueError(f"a picture has the URL {quoted(url, 60)}; give a data: URL")
        return decoded(url)  # llama-server takes base64 alone, too

    def _local(self, url: str) -> bytes:
        """As in llama-server the path is relative to the folder."""
        if self.folder is None:
            raise BadValueError(
                "this server reads no files; send pictures as data: URLs (or start it with --media-path)"
            )
        name = unquote(url.partition(":")[2].removeprefix("//")).lstrip("/")
        try:
            root = self.folder.resolve(strict=True)
            path = (root / name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file():
                raise BadValueError(f"there is no picture {quoted(name, 60)} in the server's media folder")
            if path.stat().st_size > N_BYTES_MOST:
                raise BadValueError(
                    f"the picture {quoted(name, 60)} is too large; give at most {N_BYTES_MOST >> 20} MiB"
                )
            return path.read_bytes()
        except BadValueError:
            raise
        except (OSError, ValueError, RuntimeError):
            raise BadValueError(f"there is no picture {quoted(name, 60)} in the server's media folder") from None


def names_media(f: object) -> bool:
    """Whether a request's fields have pictures or sound. Reading them takes long."""
    prompts = getattr(f, "prompt", None) or getattr(f, "content", None)
    several = prompts if isinstance(prompts, list) else [prompts]
    if any(type(p) is dict and p.get("multimodal_data") for p in several):
        return True
    messages = getattr(f, "messages", None)  # any field may be there, with anything in it
    contents = (m.get("content") for m in messages if isinstance(m, Mapping)) if isinstance(messages, list) else ()
    return any(is_picture(part) for content in contents if isinstance(content, list) for part in content)


def _fetched(url: str) -> bytes:
    """Raises BadValueError: the address is not a public one, or does not give the file."""
    until = time.monotonic() + TIMEOUT_S
    where = ""  # a redirection
    for _ in range(N_HOPS + 1):
        try:
            url = urljoin(url, where)
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            wrong = quoted(where or url, 60)
            raise BadValueError(f"a picture has the URL {wrong}, which cannot be read; check it") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadValueError(f"a picture has the URL {quoted(url, 60)}; give http: or https: and a host")
        try:
            answer = _answer(parts, port or (443 if parts.scheme == "https" else 80), until)
        except BadValueError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise BadValueError(
                f"the picture at {quoted(url, 60)} cannot be fetched ({type(e).__name__}); send it as a data: URL"
            ) from None
        if isinstance(answer, bytes):
            return answer
        where = answer
    raise BadValueError(f"the picture's address redirects more than {N_HOPS} times; give the last one")


def public_address(host: str, port: int) -> Any:
    """An address of the host to connect to, so that its name is looked up once. Raises BadValueError: one of them is
    private, of this machine, or link-local; and OSError."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, address in addresses:
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if not ip.is_global or ip.is_multicast:
            raise BadValueError(
                f"{quoted(host, 60)} is an address inside a network, from which no pictures are fetched"
            )
    return addresses[0][4]


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextmanager
def _shut_at(until: float, sock: socket.socket) -> Iterator[None]:
    """Raises TimeoutError after that time: a server may send byte after byte, none of which is late."""
    ended = threading.Event()

    def end() -> None:
        ended.set()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own would change what the other thread reads from

    timer = threading.Timer(max(0.0, until - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if not ended.is_set():
            raise
        raise TimeoutError from None
    finally:
        timer.cancel()
    if ended.is_set():  # what looks complete ends where the socket was shut
        raise TimeoutError


def _left(until: float) -> float:
    """Seconds. Raises TimeoutError."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _answer(parts: SplitResult, port: int, until: float) -> bytes | str:
    """The file, or where it is. until: on the monotonic clock. Raises BadValueError, OSError, HTTPException."""
    host = parts.hostname or ""
    address = public_address(host, port)
    connection = http.client.HTTPConnection(host, port)
    sock = connection.sock = socket.create_connection(address[:2], timeout=_left(until))
    try:
        if parts.scheme == "https":
            sock.settimeout(_left(until))  # of the whole handshake
            sock = connection.sock = _tls().wrap_socket(sock, server_hostname=host)
        with _shut_at(until, sock):
            return _received(connection, parts)
    finally:
        connection.close()


def _received(connection: http.client.HTTPConnection, parts: SplitResult) -> bytes | str:
    host = quoted(parts.hostname or "", 60)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", path, headers={"User-Agent": "duo", "Host": parts.netloc.rpartition("@")[2]})
    response = connection.getresponse()
    where = response.getheader("Location")
    if response.status in (301, 302, 303, 307, 308) and where:
        return where
    if response.status != 200:
        raise BadValueError(f"the picture at {host} cannot be fetched (status {response.status})")
    data = bytearray()
    while part := response.read1(1 << 16):
        data += part
        if len(data) > N_BYTES_MOST:
            raise BadValueError(f"the picture at {host} has more than {N_BYTES_MOST >> 20} MiB")
    return bytes(data)
