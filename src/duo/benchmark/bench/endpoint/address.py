"""Where a server is, and which of its routes is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from duo.errors import BadValueError

CHAT, COMPLETIONS = "/chat/completions", "/completions"


@dataclass(frozen=True)
class EndpointAddress:
    """One --url."""

    name: str  # in the report
    base: str  # URL up to the routes, as http://127.0.0.1:8080/v1
    chat: bool  # ask for answers to conversations, not for continuations

    @property
    def url(self) -> str:
        """The URL of the route that writes texts."""
        return self.base + (CHAT if self.chat else COMPLETIONS)

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""
        return httpx2.URL(self.base).host in ("localhost", "127.0.0.1", "::1")


def parse_address(text: str, flag: str = "--url") -> EndpointAddress:
    """[NAME=]URL; the name is the host and the port unless it is given. flag: the option. Raises BadValueError."""
    match = re.fullmatch(r"(?:([^=/:]*)=)?(.*)", text, re.DOTALL)
    name, address = (match[1], match[2]) if match else (None, text)
    try:
        url = httpx2.URL(address)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    if url.userinfo or url.query or url.fragment or "@" in address:  # not repeated here: it may hold a key
        raise BadValueError(
            f"a {flag} has a user, a query or a fragment; give the key with --api-key-file, and the URL bare"
        )
    if url.scheme not in ("http", "https") or not url.host or not 0 < (url.port or 80) < 1 << 16:
        raise BadValueError(f"{flag} {text!r} is no address of a server; write it as http://127.0.0.1:8080")
    if name is not None and not name.strip():
        raise BadValueError(f"{flag} {text!r} has an empty name; write NAME=URL")
    path = url.path.rstrip("/")
    chat = path.endswith(CHAT)
    for route in (CHAT, COMPLETIONS):
        path = path.removesuffix(route)
    path = path or "/v1"
    where = url.netloc.decode("ascii")
    return EndpointAddress(name.strip() if name else where, f"{url.scheme}://{where}{path}", chat)


def parse_addresses(texts: Sequence[str]) -> tuple[EndpointAddress, ...]:
    """Raises BadValueError: one is no address, or two have the same name."""
    by_name: dict[str, EndpointAddress] = {}
    for text in texts:
        a = parse_address(text)
        if a.name in by_name:
            raise BadValueError(
                f"two --url have the name {a.name!r}; give each its own, as first=http://127.0.0.1:8080"
            )
        by_name[a.name] = a
    return tuple(by_name.values())
