"""A draft host or a verify host that is killed, frozen, cut off, or behind a network that damages what it carries."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.torture.beside import beside
from benchmarks.torture.catalogue import N_LONG
from benchmarks.torture.judge import Seen, WrongError, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.program import check_text
from benchmarks.torture.process import Process
from benchmarks.torture.proxy import Proxy
from benchmarks.torture.room import Room
from benchmarks.torture.ways import random_way

from duo import Duo

PATIENCE_S = 3600.0  # the machine may stop this process for minutes


class Host:
    """`duo draft-host` or `duo verify-host`, which can be started again on its address."""

    def __init__(self, room: Room, role: str, *args: str | Path) -> None:
        self._room, self._role, self._args = room, role, args
        self.address = ""
        self.process = self.start()

    def start(self) -> Process:
        where = self.address or "127.0.0.1:0"
        self.process = p = self._room.nursery.start(f"{self._role}-host", "--listen", where, *self._args)
        self._room.known.add(p.pid)
        if not p.until(lambda: "\n" in p.out):
            raise WrongError(f"a host does not start: {p.err[-300:]!r}")
        self.address = p.out.split(" on ")[1].split(" ")[0]
        return p

    def end(self, what: signal.Signals, allowed: tuple[int, ...]) -> None:
        self.process.send(what)
        code = self.process.wait()
        self._room.known.discard(self.process.pid)
        check_end(code, self.process.err, allowed)


class Hosts(Kind):
    role: ClassVar[str]
    kills = True
    n_batch = 20

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.rng = rng
        self.models = room.models[rng.choice(("demo", "demo", "demo", "wild"))]
        self.seats = rng.choice((1, 2))
        self.host = Host(room, self.role, *self.host_args())
        self.way = Proxy(self.host.address)
        self.duo: Duo | None = self.open()
        self.faults: list[Callable[[random.Random], None]] = [
            self.kill, self.term, self.freeze, self.silent, self.down, self.cut, self.cut, self.delay, self.flip,
            self.flip,
        ]  # fmt: skip

    def host_args(self) -> list[Any]:
        raise NotImplementedError

    def open(self) -> Duo:
        raise NotImplementedError

    # ---- what happens while texts are written

    def kill(self, rng: random.Random) -> None:
        self.host.end(signal.SIGKILL, (-9,))
        time.sleep(rng.uniform(0, 0.2))
        self.host.start()

    def term(self, rng: random.Random) -> None:
        self.host.end(rng.choice((signal.SIGTERM, signal.SIGINT)), (0, 130))
        self.host.start()

    def freeze(self, rng: random.Random) -> None:
        self.host.process.send(signal.SIGSTOP)
        time.sleep(lasting(rng))
        self.host.process.send(signal.SIGCONT)

    def silent(self, rng: random.Random) -> None:
        self.way.set("silent")
        time.sleep(lasting(rng))
        self.way.set("up")

    def down(self, rng: random.Random) -> None:
        self.way.set("down")
        time.sleep(lasting(rng) / 2)
        self.way.set("up")

    def cut(self, rng: random.Random) -> None:
        self.way.cut(rng.choice((0, 1, 5, 9, 20, 100, 1000)))

    def delay(self, rng: random.Random) -> None:
        self.way.delay_s = rng.uniform(0, 0.02)
        time.sleep(0.1)
        self.way.delay_s = 0.0

    def flip(self, rng: random.Random) -> None:
        self.way.flip(rng)

    # ----

    def fault(self, rng: random.Random, seen: Seen) -> None:
        how = rng.random()
        if how < 0.08:
            seen.count("client killed")
            self.client_is_killed(rng, seen)
        elif how < 0.2:
            self.cancel_meanwhile(rng, seen)
        elif how < 0.28:
            self.close_meanwhile(rng, seen)
        else:
            self.write_meanwhile(rng, seen)
        if rng.random() < 0.5:
            self.write(rng, seen, 12)

    def write(self, rng: random.Random, seen: Seen, n: int) -> None:
        right = self.room.right(rng, self.models.name)
        assert self.duo is not None
        r = self.duo.generate(right.prompt, **right.given(n), **random_way(rng, self.duo))
        seen.whole(r.tokens, right.tokens[:n])
        if r.warning:
            seen.sentence(r.warning)

    def during(self, rng: random.Random, seen: Seen, work: Callable[[], None]) -> None:
        """The work, and meanwhile a fault in another thread."""
        fault, after, dice = rng.choice(self.faults), rng.uniform(0, 0.15), random.Random(rng.random())
        seen.count(fault.__name__)

        def happen() -> None:
            time.sleep(after)
            fault(dice)

        with beside(happen):
            work()

    def write_meanwhile(self, rng: random.Random, seen: Seen) -> None:
        dice = random.Random(rng.random())
        self.during(rng, seen, lambda: self.write(dice, seen, N_LONG))

    def cancel_meanwhile(self, rng: random.Random, seen: Seen) -> None:
        right, n = self.room.right(rng, self.models.name), rng.randrange(60)
        assert self.duo is not None
        s = self.duo.stream(right.prompt, **right.given())

        def work() -> None:
            got = [c.token for _, c in zip(range(n), s, strict=False) if c.token is not None]
            s.close()
            seen.ended(got, s.result.tokens, right.tokens)

        self.during(rng, seen, work)

    def close_meanwhile(self, rng: random.Random, seen: Seen) -> None:
        right = self.room.right(rng, self.models.name)
        assert self.duo is not None
        d, self.duo = self.duo, None
        s = d.stream(right.prompt, **right.given())

        def work() -> None:
            time.sleep(rng.uniform(0, 0.2))
            d.close()
            seen.part(s.result.tokens, right.tokens)

        self.during(rng, seen, work)
        self.way.heal()
        self.duo = self.open()

    def client_is_killed(self, rng: random.Random, seen: Seen) -> None:
        right = self.room.right(rng, self.models.name)
        self.way.heal()
        p = self.room.nursery.start(*self.client_args(), *right.args(), "--no-display-prompt")
        if rng.random() < 0.5:
            time.sleep(rng.uniform(0, 0.8))
        else:
            p.until(lambda: p.out_path.stat().st_size > 5)
        p.send(rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        # -6 is not among them: gRPC's threads must not abort it.
        code = p.wait()
        check_end(code, p.err, (-9, -15, 130, 0, -2))
        if right.is_plain:
            check_text(p, right, N_LONG, seen, whole=code == 0)

    def client_args(self) -> list[Any]:
        raise NotImplementedError

    def close(self) -> None:
        assert self.duo is not None
        self.duo.close()
        self.way.close()
        self.host.end(signal.SIGTERM, (0,))


def lasting(rng: random.Random) -> float:
    """Seconds of a fault: most are over before anybody gives the host up."""
    return rng.uniform(4, 5) if rng.random() < 0.02 else rng.choice((0.02, 0.1, 0.3)) * rng.uniform(0.5, 1.5)
