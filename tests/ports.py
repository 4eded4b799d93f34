"""Ports for programs that must be told one, or that come back on the same one. Others let the system choose (port 0).

The system never assigns these ports itself. A port from its own range could go to another program.
"""

import errno
import os
import socket
from pathlib import Path

FIRST, LAST = 10_000, 65_535
N_EACH = 256  # of a process; another test process has other ones
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _mine() -> range:
    """Empty if the system's own range leaves no room."""
    low, high = map(int, RANGE.read_text().split()) if RANGE.exists() else (32_768, 60_999)
    n_below, n_above = max(0, (low - FIRST) // N_EACH), max(0, (LAST - high) // N_EACH)
    if n_below + n_above == 0:
        return range(0)
    i = os.getpid() % (n_below + n_above)
    first = FIRST + i * N_EACH if i < n_below else high + 1 + (i - n_below) * N_EACH
    return range(first, first + N_EACH)


_left: list[int] = []


def free_port() -> int:
    """On 127.0.0.1. It is given out once, until all of this process are."""
    for _ in range(2 * N_EACH):
        if not _left:
            _left.extend(reversed(_mine()))
        port = _left.pop() if _left else 0
        try:
            with socket.create_server(("127.0.0.1", port)) as s:
                port = s.getsockname()[1]
        except OSError as e:
            if e.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, "all ports of this process are in use")
