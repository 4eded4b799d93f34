"""A machine of its own (a network namespace) behind a cable as slow and lossy as it is told to be. Root, iproute2.

with far_machine(delay_ms=25, loss=0.01, rate_kbit=1000) as c:
    subprocess.Popen(c.command("duo", "draft-host", "--listen", f"{c.there}:50060", "--insecure"))

With netem in the kernel it is a veth pair and `tc netem` at both ends, without it two TUN devices and packet_relay.py.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from waits import in_time

RELAY = Path(__file__).with_name("packet_relay.py")
STEP_S = 60


def _run(*command: str) -> None:
    r = subprocess.run(command, capture_output=True, text=True, timeout=STEP_S, check=False)
    if r.returncode != 0:
        raise OSError(f"{' '.join(command)}: {r.stderr.strip()}")


def _works(*commands: str) -> str:
    """Why one of the commands fails; empty: none does."""
    try:
        for command in commands:
            _run(*command.split())
    except OSError as e:
        return str(e)
    return ""


@cache
def has_netem() -> bool:
    name = f"duo{os.getpid()}n"
    if _works(f"ip netns add {name}"):
        return False
    try:
        return not _works(f"ip netns exec {name} tc qdisc add dev lo root netem delay 1ms")
    finally:
        _run("ip", "netns", "del", name)


@cache
def why_not() -> str:
    """Why there can be no cable; empty: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"iproute2 is not installed ({missing[0]})"
    name = f"duo{os.getpid()}t"
    why = _works(f"ip netns add {name}")
    if why:
        return why
    _run("ip", "netns", "del", name)
    if not has_netem() and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "the kernel has neither netem nor TUN devices"
    return ""


class FarMachine:
    """`here` and `there`: addresses of both ends. `namespace` is the other machine."""

    def __init__(self) -> None:
        n = os.getpid()
        self.namespace = f"duo{n}"
        self._ends = f"duo{n % 10**6}a", f"duo{n % 10**6}b"
        net = f"198.18.{n // 60 % 250}.{n % 60 * 4}"  # for tests of networks (RFC 2544)
        self.here, self.there = (f"{net.rpartition('.')[0]}.{n % 60 * 4 + i}" for i in (1, 2))
        self._relay: subprocess.Popen[str] | None = None
        _run("ip", "netns", "add", self.namespace)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        here, there = self._ends
        if has_netem():
            _run("ip", "link", "add", here, "type", "veth", "peer", "name", there)
        else:
            pipe = subprocess.PIPE
            self._relay = subprocess.Popen([sys.executable, RELAY, here, there], stdin=pipe, stdout=pipe, text=True)
            assert self._relay.stdout is not None
            with in_time(self._relay):
                said = self._relay.stdout.readline()
            if said != "ready\n":
                raise OSError("the relay does not start")
        _run("ip", "link", "set", there, "netns", self.namespace)
        for end, address in ((here, self.here), (there, self.there)):
            run = ("ip",) if end == here else ("ip", "-n", self.namespace)
            peer = self.there if end == here else self.here
            where = ("peer", peer) if self._relay else ()
            _run(*run, "address", "add", address if where else f"{address}/30", *where, "dev", end)
            _run(*run, "link", "set", end, "up")

    def set(self, delay_ms: float = 0.0, loss: float = 0.0, rate_kbit: float = 0.0) -> None:
        """For each direction; loss: share of packets, 1: a black hole; rate_kbit 0: as fast as it goes."""
        if self._relay is not None:
            assert self._relay.stdin is not None
            self._relay.stdin.write(f"{delay_ms} {loss} {rate_kbit}\n")
            self._relay.stdin.flush()
            return
        how = ["delay", f"{delay_ms}ms", "loss", f"{100 * loss}%"]
        how += ["rate", f"{rate_kbit}kbit"] if rate_kbit else []
        for i, end in enumerate(self._ends):
            run = ("tc",) if i == 0 else ("tc", "-n", self.namespace)
            _run(*run, "qdisc", "replace", "dev", end, "root", "netem", *how)

    def pull(self) -> None:
        """The link of this end goes down."""
        _run("ip", "link", "set", self._ends[0], "down")

    def plug(self) -> None:
        _run("ip", "link", "set", self._ends[0], "up")

    @property
    def n_bytes(self) -> int:
        """Both ways, with the heads of IP and TCP."""
        counts = Path(f"/sys/class/net/{self._ends[0]}/statistics")
        return sum(int((counts / name).read_text()) for name in ("rx_bytes", "tx_bytes"))

    def command(self, *args: str | Path) -> list[str]:
        """To be run at the other end; the process is the command's own."""
        return ["ip", "netns", "exec", self.namespace, *map(str, args)]

    def close(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate(timeout=STEP_S)
        elif has_netem():
            _works(f"ip link del {self._ends[0]}")
        _run("ip", "netns", "del", self.namespace)


@contextmanager
def far_machine(delay_ms: float = 0.0, loss: float = 0.0, rate_kbit: float = 0.0) -> Iterator[FarMachine]:
    c = FarMachine()
    try:
        c.set(delay_ms, loss, rate_kbit)
        yield c
    finally:
        c.close()
