"""A cable between a client and its host that can be pulled, and that takes its time: no root needed."""

import queue
import socket
import threading
import time
from contextlib import suppress

from conftest import HANG_S


class Cable:
    """Forwards connections to `address`; `self.address` is this end of it."""

    def __init__(self, address: str, delay_s: float = 0.0) -> None:
        host, _, port = address.rpartition(":")
        self._to, self._delay_s = (host, int(port)), delay_s
        self._pulled: set[int] = set()  # generations of connections that nothing comes through any more
        self._generation = 0
        self._down = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def pull(self) -> None:
        """Nothing comes through, and neither side hears of it."""
        self._down.set()
        self._pulled.add(self._generation)

    def mend(self) -> None:
        """New connections come through; those that there were stay dead, as behind a router that was changed."""
        self._generation += 1
        self._down.clear()

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(HANG_S)  # it accepts, so it may still open sockets
        for s in self._sockets:
            with suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        for t in self._threads[1:]:
            t.join(HANG_S)

    def __enter__(self) -> "Cable":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, work: object, *args: object) -> None:
        t = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(t)
        t.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._closed.is_set():
                near, _ = self._listener.accept()
                self._sockets.append(near)
                if self._down.is_set():
                    continue  # taken by the kernel, answered by nobody
                far = socket.create_connection(self._to, HANG_S)
                far.settimeout(None)
                self._sockets.append(far)
                for a, b in ((near, far), (far, near)):
                    late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                    self._start(self._read, a, late, self._generation)
                    self._start(self._write, b, late)

    def _read(self, a: socket.socket, late: "queue.SimpleQueue[tuple[float, bytes]]", generation: int) -> None:
        data = b"x"
        while data and not self._closed.is_set():
            try:
                data = a.recv(65536)
            except OSError:
                data = b""
            if generation in self._pulled:
                return
            late.put((time.monotonic() + self._delay_s, data))

    def _write(self, b: socket.socket, late: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
        with suppress(OSError, queue.Empty):
            while not self._closed.is_set():
                try:
                    due, data = late.get(timeout=0.2)
                except queue.Empty:
                    continue
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    b.shutdown(socket.SHUT_WR)
                    return
                b.sendall(data)
