"""What `tc netem` does, for kernels that have none: carries packets between two TUN devices, late, lossy and slow.

packet_relay.py HERE THERE        lines on standard input: DELAY_MS LOSS RATE_KBIT (0: as fast as it goes)
"""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from contextlib import suppress

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
N_QUEUE = 100  # packets that wait for a slow line; more are lost


def tun(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


class Way:
    """One direction."""

    def __init__(self, out: int, seed: int) -> None:
        self._out, self._rng = out, random.Random(seed)
        self.delay_s = self.loss = self.bytes_per_s = 0.0
        self._free_at = 0.0  # when the line has sent what it took
        self._n = 0
        self._queue: list[tuple[float, int, bytes]] = []

    def take(self, packet: bytes, now: float) -> None:
        if len(self._queue) >= N_QUEUE or self._rng.random() < self.loss:
            return
        self._free_at = max(now, self._free_at) + (len(packet) / self.bytes_per_s if self.bytes_per_s else 0.0)
        self._n += 1
        heapq.heappush(self._queue, (self._free_at + self.delay_s, self._n, packet))

    def deliver(self, now: float) -> float:
        """What is due; returns when the next one is."""
        while self._queue and self._queue[0][0] <= now:
            packet = heapq.heappop(self._queue)[2]
            with suppress(OSError):  # the other end is down: lost
                os.write(self._out, packet)
        return self._queue[0][0] if self._queue else now + 1.0


def read(fd: int) -> list[bytes]:
    packets = []
    with suppress(OSError):
        while len(packets) < 64:
            packets.append(os.read(fd, 65536))
    return packets


def main() -> None:
    here, there = (tun(name) for name in sys.argv[1:])
    ways = {here: Way(there, 1), there: Way(here, 2)}
    print("ready", flush=True)
    due = 0.0
    while True:
        ready, _, _ = select.select([0, here, there], [], [], max(0.0, due - time.monotonic()))
        if 0 in ready:
            line = os.read(0, 4096)
            if not line:
                return
            delay_ms, loss, rate_kbit = map(float, line.decode().split("\n")[-2].split())
            for way in ways.values():
                way.delay_s, way.loss, way.bytes_per_s = delay_ms / 1e3, loss, rate_kbit * 125
        now = time.monotonic()
        n_packets = 0
        for fd, way in ways.items():
            if fd in ready:
                for packet in read(fd):
                    way.take(packet, now)
                    n_packets += 1
        if ready and not n_packets:
            time.sleep(0.002)  # a device that is down is always ready, and has nothing
        now = time.monotonic()
        due = min(way.deliver(now) for way in ways.values())


if __name__ == "__main__":
    main()
