"""A TCP proxy between a client and its host that can lose the network: in this process, one thread."""

import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from conftest import HANG_S
from waits import join

N_READ = 65536
STILL_S = 0.2
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset


class Proxy:
    """`up`: all is carried; `silent`: nothing is, and nothing ends; `down`: all connections end and none begins."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._state = "up"
        self.n_bytes = 0  # both ways, payload of TCP
        self._select = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._peer: dict[socket.socket, socket.socket] = {}
        self._stop = False
        self._changed = threading.Event()
        self._select.register(self._bell, selectors.EVENT_READ)
        self._select.register(self._server, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._thread.start()

    def set(self, state: str, target: str | None = None) -> None:
        """Returns when it is so. target: another host from now on."""
        self._state, self._target = state, target or self._target
        self._wake()

    def wait_until_still(self, least: int) -> None:
        """Until so many bytes have passed, and then none for a while: whoever sends has to wait."""
        until, last, since = time.monotonic() + HANG_S, -1, 0.0
        while last < least or time.monotonic() - since < STILL_S:
            assert time.monotonic() < until, f"{last} bytes have passed, the last {time.monotonic() - since:.1f} s ago"
            if self.n_bytes != last:
                last, since = self.n_bytes, time.monotonic()
            time.sleep(0.01)

    def close(self) -> None:
        self._stop = True
        self._ring.send(b"x")
        join(self._thread)
        for s in (self._bell, self._ring, self._server):
            s.close()
        self._select.close()

    def _wake(self) -> None:
        self._changed.clear()
        self._ring.send(b"x")
        assert self._changed.wait(HANG_S)

    def _run(self) -> None:
        while not self._stop:
            for key, _ in self._select.select():
                s = key.fileobj
                assert isinstance(s, socket.socket)
                if s is self._bell:
                    self._bell.recv(100)
                    self._obey()
                elif s is self._server:
                    self._accept()
                elif s in self._peer:
                    self._carry(s)
        self._drop_all()

    def _obey(self) -> None:
        if self._state == "down":
            self._drop_all()
        for s in (self._server, *self._peer):
            with suppress(KeyError):
                self._select.unregister(s)
            if self._state == "up" or (s is self._server and self._state == "down"):
                self._select.register(s, selectors.EVENT_READ)
        self._changed.set()

    def _accept(self) -> None:
        here, _ = self._server.accept()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        name, _, port = self._target.rpartition(":")
        try:
            if self._state == "down":
                raise ConnectionRefusedError
            there = socket.create_connection((name, int(port)), 5)
        except OSError:
            here.close()
            return
        for a, b in ((here, there), (there, here)):
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            a.settimeout(2)
            self._peer[a] = b
            self._select.register(a, selectors.EVENT_READ)

    def _carry(self, s: socket.socket) -> None:
        try:
            data = s.recv(N_READ)
            self._peer[s].sendall(data)
        except OSError:
            data = b""
        self.n_bytes += len(data)
        if not data:
            self._drop(s)

    def _drop(self, s: socket.socket) -> None:
        for end in (s, self._peer.pop(s)):
            self._peer.pop(end, None)
            with suppress(KeyError):
                self._select.unregister(end)
            end.close()

    def _drop_all(self) -> None:
        while self._peer:
            self._drop(next(iter(self._peer)))


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    p = Proxy(target)
    try:
        yield p
    finally:
        p.close()
