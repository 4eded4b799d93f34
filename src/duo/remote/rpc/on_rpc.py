"""A host whose model is on devices of GGML RPC servers. libggml ends this process when a server is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from duo import _core
from duo.options.model import ModelOptions
from duo.remote.rpc import server as rpc

SILENT_S = 120.0  # enough for 512 tokens of a prompt on a slow server, or a matrix over a slow network
_CONNECT_S = 4.0  # a text may wait for this
_ASK_S = 5.0


def use_servers(m: ModelOptions, servers: Sequence[str]) -> ModelOptions:
    """Connects to the servers. Returns the options with all their devices, unless they name devices already.

    From then on the process ends with one sentence if a server is lost or silent for SILENT_S.

    Raises PeerLostError: a server cannot be reached. Raises DuoError: libggml has no RPC.
    """
    if not servers:
        return m
    names = rpc.connect(servers, _CONNECT_S)
    threading.Thread(target=_watch, args=(list(servers), names), daemon=True, name="duo-rpc-watch").start()
    return m if m.devices else replace(m, devices=tuple(names))


def _watch(endpoints: list[str], names: list[str]) -> None:
    """Asks the servers regularly: libggml has no time-out, and notices nothing between texts."""
    ports = [rpc.split(e)[1] for e in endpoints]
    silent = f"the RPC server {' or '.join(endpoints)} has not answered for {SILENT_S:g} s"
    while True:
        rpc.guard_connections(ports)
        with rpc.deadline(SILENT_S, silent):
            for name in names:
                _core.rpc_memory(name)
        time.sleep(_ASK_S)
