"""The address of a host: host:port, [IPv6]:port or unix:/path."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from duo.errors import BadValueError


@dataclass(frozen=True)
class HostAddress:
    """`host` empty: a Unix socket at `path`."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of(cls, text: str, *, option: str, any_port: bool = False) -> HostAddress:
        """Reads an address. any_port: allow port 0, where the system chooses. Raises BadValueError."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path.startswith("/") or not path.isprintable() or len(path.encode()) > 100:
                raise BadValueError(f"{option} is {text!r}; write a Unix socket as unix:/path, with 100 bytes at most")
            return cls(path=path)
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})", text)
        port = int(match[3]) if match else -1
        if match is None or not (0 if any_port else 1) <= port <= 65535:
            raise BadValueError(f"{option} is {text!r}; write it as host:port, [IPv6]:port or unix:/path")
        return cls(host=match[1] or match[2], port=port)

    @property
    def is_local(self) -> bool:
        """Only this machine can reach it."""
        if not self.host or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    @property
    def target(self) -> str:
        """The address in gRPC's notation."""
        if not self.host:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.target
