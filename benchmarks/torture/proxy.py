"""A TCP proxy that loses the network, delays it, cuts it in mid-message, or changes bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

N_READ = 65536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset


class Proxy:
    """Its state is "up", "silent" (nothing is carried, nothing ends) or "down" (all ends, nothing begins)."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._up = threading.Event()
        self._up.set()
        self._lock = threading.Lock()
        self._down = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._change: Callable[[bytes], bytes] | None = None  # of the next data
        self._cut = -1  # bytes until all connections end; below 0: never
        self.delay_s = 0.0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, name="proxy")
        self._accepting.start()

    def set(self, state: str) -> None:
        self._down = state == "down"
        if state == "silent":
            self._up.clear()
        else:
            self._up.set()
        if self._down:
            self._end_all()

    def cut(self, n: int) -> None:
        """All connections end with a reset after n more bytes, of which the last may be half a message."""
        self._cut = n

    def heal(self) -> None:
        """What was ordered and has not happened is forgotten."""
        self._cut, self._change, self.delay_s = -1, None, 0.0
        self.set("up")

    def flip(self, rng: random.Random) -> None:
        """The next data are changed."""

        def change(data: bytes) -> bytes:
            out = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 8))):
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
            return bytes(out)

        self._change = change

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._up.set()
        self._end_all()
        self._accepting.join()
        for t in self._threads:
            t.join()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            try:
                if self._down:
                    raise ConnectionRefusedError
                there = socket.create_connection((self._host, self._port), 5)
                there.settimeout(None)
            except OSError:
                here.close()
                continue
            for s in (here, there):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((here, there))
                self._threads = [t for t in self._threads if t.is_alive()]
            for a, b in ((here, there), (there, here)):
                t = threading.Thread(target=self._carry, args=(a, b), name="proxy")
                self._threads.append(t)
                t.start()

    def _carry(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(N_READ):
                self._up.wait()
                if self.delay_s:
                    time.sleep(self.delay_s)
                change, self._change = self._change, None
                if change is not None:
                    data = change(data)
                if self._cut >= 0:
                    left = self._cut
                    self._cut -= len(data)
                    if self._cut < 0:
                        b.sendall(data[:left])
                        self._end_all()
                        return
                b.sendall(data)
        except OSError:
            pass
        finally:
            self._end((a, b))

    def _end_all(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self._cut = -1
        for pair in pairs:
            self._shut(pair)

    def _end(self, ends: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs = [p for p in self._pairs if set(p) != set(ends)]
        self._shut(ends)

    @staticmethod
    def _shut(pair: tuple[socket.socket, socket.socket]) -> None:
        for s in pair:
            with suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
