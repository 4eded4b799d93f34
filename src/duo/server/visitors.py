"""Which web pages may use the server: neither one that gives its own name this machine's address (DNS rebinding), nor
one that sends a request across sites, which needs no permission of the browser's."""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from duo.errors import BadValueError
from duo.server.listening import is_loopback_address
from duo.support.comma_separated import comma_separated
from duo.support.wording import quoted

LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
PORTS = {"http": 80, "https": 443}  # which an origin leaves out
READING = ("GET", "HEAD", "OPTIONS")  # a page of another site cannot see the answer
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


def _name(value: str) -> str | None:
    """A name or an address as browsers send it; of other letters than ASCII they send the xn-- form. None: neither."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(value))
    return value if re.fullmatch(r"[a-z0-9_.-]+", value) else None


def _nobody_elses(name: str) -> bool:
    """Whether nobody else can let this name, or address, mean this machine."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    own = socket.gethostname().lower()
    return bool(name) and ("." not in name or name in (own, f"{own}.local"))


@dataclass(frozen=True)
class Visitors:
    """hosts: names that a request may call the server by, beside those of this machine; None: any. asks_here: even
    then, a browser of this machine has to call it by one of the machine's names. origins: of pages that may use it,
    "localhost" or "*" among them."""

    hosts: frozenset[str] | None = None
    origins: tuple[str, ...] = ("localhost",)
    asks_here: bool = False

    @classmethod
    def of(cls, allowed_hosts: str | None, cors_origins: str, *, only_here: bool, keyed: bool = False) -> Visitors:
        """only_here: nobody but this machine can reach the server. keyed: it asks for a key. Raises BadValueError."""
        names = comma_separated(allowed_hosts)
        anybody = "*" in names if allowed_hosts is not None else keyed or not only_here
        hosts = frozenset(allowed_name(x) for x in names if x != "*")
        origins = tuple(map(allowed_origin, comma_separated(cors_origins)))
        return cls(None if anybody else hosts, origins, asks_here=allowed_hosts is None and not keyed)

    def knows_host(self, host: str, *, over_loopback: bool = False) -> bool:
        """A request without a Host comes from no browser. over_loopback: the connection never left this machine."""
        name = host_of(host)
        own = is_loopback_address(name) or name.endswith(".localhost") or name in OF_CONTAINERS  # RFC 6761
        if not host or own:
            return True
        if self.hosts is None:
            return not (self.asks_here and over_loopback) or _nobody_elses(name)
        return name in self.hosts

    def knows_origin(self, method: str, origin: str, host: str, *, fetch_site: str = "") -> bool:
        """Whether a request may do more than read. origin: of the page that sends it; empty: it is no page. fetch_site:
        what the browser says of the page (Sec-Fetch-Site), which is right even if a proxy has changed the host."""
        if method in READING or not origin or "*" in self.origins or origin in self.origins:
            return True
        if "localhost" in self.origins and re.fullmatch(LOCALHOST, origin):
            return True
        return fetch_site == "same-origin" or urlsplit(origin).netloc.lower() == host.strip().lower()

    def may_load(self, origin: str, host: str, fetch_site: str) -> bool:
        """Whether a request that only reads may load a model, too. Pages of other sites may send it, even without an
        origin (as for a picture), but then their browsers say that it is across sites."""
        if origin:
            return self.knows_origin("POST", origin, host, fetch_site=fetch_site)
        return fetch_site != "cross-site" or "*" in self.origins
