"""Which web pages may use the server: neither one that gives its own name this machine's address (DNS rebinding), nor
one that sends a request across sites, which needs no permission of the browser's."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from duo.errors import BadValueError
from duo.support.comma_separated import comma_separated
from duo.support.wording import quoted

LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
PORTS = {"http": 80, "https": 443}  # which an origin leaves out
READING = ("GET", "HEAD", "OPTIONS")  # a page of another site cannot see the answer
BROWSERS = "Mozilla/"  # how all of them begin their User-Agent
_OF_PAGES = (b"origin", b"host", b"sec-fetch-site", b"referer", b"user-agent")  # in the order of PageHeaders
# How containers call the machine that runs them. Nobody can register a name below .internal.
OF_CONTAINERS = ("host.docker.internal", "host.containers.internal")


def host_of(value: str) -> str:
    """ "[::1]:8080" -> "::1", "Localhost.:80" -> "localhost"."""
    match = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?", value.strip())
    return (match[1] or match[2] or "").rstrip(".").lower() if match else ""


def allowed_name(value: str) -> str:
    """A name or address of --allowed-hosts, as `host_of` finds it in a request. Raises BadValueError."""
    if (name := _name(host_of(value) or value)) is None:
        raise BadValueError(f"--allowed-hosts {quoted(value)} is not a name; write it as duo.example, or * for any")
    return name


def allowed_origin(value: str) -> str:
    """An origin of --cors-origins, as browsers write it. Raises BadValueError."""
    if value in ("*", "localhost", "null"):
        return value
    wrong = BadValueError(
        f"--cors-origins {quoted(value)} is not an origin; write it as https://duo.example, or * for all"
    )
    try:
        url = urlsplit(value)
        name, port = _name(url.hostname or ""), url.port
    except ValueError:
        raise wrong from None
    if not url.scheme or name is None or url.username is not None or url.path.strip("/") or url.query or url.fragment:
        raise wrong
    host = f"[{name}]" if ":" in name else name
    return f"{url.scheme}://{host}" if port in (None, PORTS.get(url.scheme)) else f"{url.scheme}://{host}:{port}"


def _split(url: str) -> tuple[str, str]:
    """Scheme and host of a page that a client names. Of what is no URL the host is none that a request can have."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.netloc
    except ValueError:
        return "", "?"


def _name(value: str) -> str | None:
    """A name or an address as browsers send it; of other letters than ASCII they send the xn-- form. None: neither."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(value))
    return value if re.fullmatch(r"[a-z0-9_.-]+", value) else None


def _is_own(name: str, *, over_loopback: bool) -> bool:
    """Whether no page of a stranger can have this name and this machine's address. What is left are machines of the
    local network: they may claim a name without a dot, or one of .local. Over the network they reach the server anyway;
    over loopback they would not, so there it has to be this machine's name."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))  # a page at an address is that machine's own
    if name.endswith(".localhost") or name in ("localhost", *OF_CONTAINERS):  # RFC 6761
        return True
    own = socket.gethostname().lower()
    short = own.partition(".")[0]
    if name in (own, short, f"{short}.local"):
        return True
    if re.fullmatch(r"[a-z0-9_-]+", name):
        return not over_loopback
    return name.startswith(f"{short}.") and name == _whole_name()


@cache
def _whole_name() -> str:
    """This machine's name with its domain. It may have to ask the network, and does so once."""
    return socket.getfqdn().lower()


class PageHeaders(NamedTuple):
    """What a browser says of a request: the page that sends it, how it calls the server, what it thinks of both, the
    page's address, and its own name. Empty: nothing."""

    origin: str = ""
    host: str = ""
    fetch_site: str = ""
    referer: str = ""
    agent: str = ""

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> PageHeaders:
        """headers: of a request, with names in small letters."""
        sent = {k: v.decode("latin-1") for k, v in headers}
        return cls(*(sent.get(name, "") for name in _OF_PAGES))


@dataclass(frozen=True)
class Visitors:
    """hosts: names that a request may call the server by, beside those of this machine; None: any. origins: of pages
    that may use it, "localhost" or "*" among them."""

    hosts: frozenset[str] | None = None
    origins: tuple[str, ...] = ("localhost",)

    @classmethod
    def of(cls, allowed_hosts: str | None, cors_origins: str, *, keyed: bool = False) -> Visitors:
        """keyed: the server asks for a key, which no page of a stranger has. Raises BadValueError."""
        names = comma_separated(allowed_hosts)
        anybody = "*" in names if allowed_hosts is not None else keyed
        hosts = frozenset(allowed_name(x) for x in names if x != "*")
        return cls(None if anybody else hosts, tuple(map(allowed_origin, comma_separated(cors_origins))))

    def knows_host(self, host: str, *, over_loopback: bool = False) -> bool:
        """A request without a Host comes from no browser. over_loopback: the connection never left this machine."""
        if not host or self.hosts is None:
            return True
        name = host_of(host)
        return name in self.hosts or _is_own(name, over_loopback=over_loopback)

    def knows_origin(self, method: str, origin: str, host: str, *, fetch_site: str = "") -> bool:
        """Whether a request may do more than read. origin: of the page that sends it; empty: it is no page. fetch_site:
        what the browser says of the page (Sec-Fetch-Site), which is right even if a proxy has changed the host."""
        if method in READING or not origin or "*" in self.origins or origin in self.origins:
            return True
        if "localhost" in self.origins and re.fullmatch(LOCALHOST, origin):
            return True
        return fetch_site == "same-origin" or _split(origin)[1].lower() == host.strip().lower()

    def may_load(self, page: PageHeaders) -> bool:
        """Whether a request that only reads may load a model, too. Pages of other sites may send it, even without an
        origin (as for a picture). Then their browsers say that it is across sites, but not to an address such as
        http://192.168.1.5; there a browser has to say from which page it comes."""
        if page.origin:
            return self.knows_origin("POST", page.origin, page.host, fetch_site=page.fetch_site)
        if "*" in self.origins:
            return True
        if page.fetch_site:
            return page.fetch_site != "cross-site"
        if page.referer:
            scheme, netloc = _split(page.referer)
            return self.knows_origin("POST", f"{scheme}://{netloc}", page.host)
        return not page.agent.startswith(BROWSERS)
