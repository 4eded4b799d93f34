"""Where models come from and where they are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import urlsplit

from duo.errors import DuoError

PUBLIC = "https://huggingface.co"


def _cache() -> Path:
    """As huggingface_hub finds it, but when it is needed and not when that is imported."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()


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
        raise DuoError(f"HF_ENDPOINT is {endpoint!r}, which is no address; write it as {PUBLIC}")
    return endpoint


def _token() -> str | None:
    _endpoint()  # huggingface_hub reads it, and cannot be imported with some that are none
    from huggingface_hub import get_token

    return get_token()  # HF_TOKEN, or what `hf auth login` has stored


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True)
class HubSettings:
    """Where models come from and where they are kept; by default what the environment says (HF_ENDPOINT, HF_TOKEN,
    HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE)."""

    endpoint: str = field(default_factory=_endpoint)
    token: str | None = field(default_factory=_token, repr=False)
    cache: Path = field(default_factory=_cache)
    offline: bool = field(default_factory=_offline)
    note: Callable[[str], None] = field(default=lambda _: None, repr=False)  # what the user may want to know

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise DuoError("the token (HF_TOKEN) has characters that no token has; copy it again")
        if not _is_address(self.endpoint):
            raise DuoError(f"the hub's endpoint is {self.endpoint!r}, which is no address; write it as {PUBLIC}")
