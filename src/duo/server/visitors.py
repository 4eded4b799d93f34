"""Which web pages may use the server: neither one that gives its own name this machine's address (DNS rebinding), nor
one that sends a request across sites, which needs no permission of the browser's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from duo.server.listening import is_loopback_address

LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
READING = ("GET", "HEAD", "OPTIONS")  # a page of another site cannot see the answer


def host_of(value: str) -> str:
    """ "[::1]:8080" -> "::1", "Localhost.:80" -> "localhost"."""
    match = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?", value.strip())
    return (match[1] or match[2] or "").rstrip(".").lower() if match else ""


@dataclass(frozen=True)
class Visitors:
    """hosts: names that a request may call the server by, beside those of this machine; None: any. origins: of pages
    that may use it, "localhost" or "*" among them."""

    hosts: frozenset[str] | None = None
    origins: tuple[str, ...] = ("localhost",)

    @classmethod
    def of(cls, allowed_hosts: str | None, origins: Iterable[str], *, only_here: bool) -> Visitors:
        """only_here: nobody but this machine can reach the server, and it asks for no key."""
        names = {host_of(x) for x in (allowed_hosts or "").split(",") if x.strip()}
        anybody = "*" in names if allowed_hosts is not None else not only_here
        return cls(None if anybody else frozenset(names), tuple(origins))

    def knows_host(self, host: str) -> bool:
        """A request without a Host comes from no browser."""
        name = host_of(host)
        own = is_loopback_address(name) or name.endswith(".localhost")  # RFC 6761
        return self.hosts is None or not host or own or name in self.hosts

    def knows_origin(self, method: str, origin: str, host: str) -> bool:
        """Whether a request may do more than read. origin: of the page that sends it; empty: it is no page."""
        if method in READING or not origin or "*" in self.origins or origin in self.origins:
            return True
        if "localhost" in self.origins and re.fullmatch(LOCALHOST, origin):
            return True
        return urlsplit(origin).netloc.lower() == host.strip().lower()  # a page of the server's own
