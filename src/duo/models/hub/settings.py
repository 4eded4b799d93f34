"""The hub that models come from, and the cache that keeps them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from duo.errors import BadValueError

if TYPE_CHECKING:
    from duo.models.hub.listing import Listing

PUBLIC = "https://huggingface.co"


def _cache() -> Path:
    """Found as llama.cpp does (common/hf-cache.cpp), whose order is that of huggingface_hub behind LLAMA_CACHE, but at
    the time of use and not of import."""
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := os.environ.get(name):
            return _expanded(Path(folder))
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return _expanded(Path(home, "hub"))


def _expanded(cache: Path) -> Path:
    try:
        return cache.expanduser()
    except RuntimeError:
        raise BadValueError(
            f"the hub's cache {cache} is in an unknown home folder; set LLAMA_CACHE or HF_HOME to a whole path"
        ) from None


def _is_address(endpoint: str) -> bool:
    if not re.fullmatch(r"https?://[!-~]+", endpoint):
        return False
    try:
        url = urlsplit(endpoint)
        host, _ = url.hostname or "", url.port
        host.encode("idna")
        if "[" in url.netloc:
            IPv6Address(host)
    except ValueError:
        return False
    return bool(host) and not url.query and not url.fragment


def _endpoint() -> str:
    endpoint = (os.environ.get("HF_ENDPOINT") or PUBLIC).rstrip("/")
    if not _is_address(endpoint):
        raise BadValueError(f"HF_ENDPOINT is {endpoint!r}, which is not a web address; write it as {PUBLIC}")
    return endpoint


def _token() -> str | None:
    _endpoint()  # checked first: huggingface_hub cannot be imported with some wrong values
    from huggingface_hub import get_token

    try:
        return get_token()  # HF_TOKEN, or the token that `hf auth login` has stored
    except OSError:  # which may not be read; the hub says so if it wants one
        return None


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _warn(note: str) -> None:
    import logging

    logging.getLogger("duo").warning("%s", note)


@dataclass(frozen=True)
class HubSettings:
    """The hub that models come from, and the cache that keeps them. The defaults are from the environment: HF_ENDPOINT,
    HF_TOKEN, LLAMA_CACHE, HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE."""

    endpoint: str = field(default_factory=_endpoint)
    token: str | None = field(default_factory=_token, repr=False)
    cache: Path = field(default_factory=_cache)
    offline: bool = field(default_factory=_offline)
    note: Callable[[str], None] = field(default=_warn, repr=False)  # receives notes for the user
    # Of the repositories that were asked, so that none is asked twice. None: each is asked each time.
    listings: dict[str, Listing] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise BadValueError("the token (HF_TOKEN) contains invalid characters; copy it again")
        if not _is_address(self.endpoint):
            raise BadValueError(
                f"the hub's endpoint is {self.endpoint!r}, which is not a web address; write it as {PUBLIC}"
            )
