"""A GGML RPC server that is killed, frozen or cut off. libggml ends its client then, which is a child of duo's."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from typing import Any

from benchmarks.torture.catalogue import EXACT, N_LONG
from benchmarks.torture.judge import Seen, WrongError
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.hosts import lasting
from benchmarks.torture.process import Patience, Process
from benchmarks.torture.proxy import Proxy
from benchmarks.torture.room import Room
from benchmarks.torture.ways import random_way

from duo import Duo, _core
from duo.gguf_tools.switched_duo import SwitchedDuo


class Rpc(Kind):
    name = "RPC server killed, frozen, cut off"
    share = 2
    n_batch = 12
    kills = True
    spawns = False  # duo starts its child again whenever it ends; at the end of the batch none may be left

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.duo: Duo | None = None
        if not _core.supports_rpc():
            return
        self.port = 0
        self.start()
        self.way = Proxy(f"127.0.0.1:{self.port}")
        models = room.models["demo"]
        self.duo = SwitchedDuo(
            models.target, models.drafts[0], rpc=[self.way.address], n_ctx=1024, n_threads=1, always=True,
            delay=(3000, 1), **EXACT,
        )  # fmt: skip

    def start(self) -> None:
        # A new interpreter: libggml's server must be the only thing in its process.
        for _ in range(50):
            self.process: Process = self.room.nursery.start("rpc-server", "-p", str(self.port))
            self.room.known.add(self.process.pid)
            if self.process.until(lambda: "transport" in self.process.out):
                break
            time.sleep(0.1)  # the port is still taken by connections of the last one
        found = re.search(r"endpoint\s*: \S+:(\d+)", self.process.out)
        if found is None:
            raise WrongError(f"an RPC server does not start: {self.process.err[-300:]!r}")
        self.port = int(found[1])

    def fault(self, rng: random.Random, seen: Seen) -> None:
        if self.duo is None:
            seen.count("not run: this llama-cpp-python has no RPC")
            return
        right, dice = self.room.right(rng), random.Random(rng.random())
        what = rng.choice(("kill", "freeze", "silent", "down", "cut", "the child"))
        seen.count(what)
        happens = threading.Thread(target=self.happen, args=(what, dice))
        s = self.duo.stream(right.prompt, **right.given(N_LONG), **random_way(rng, self.duo))
        happens.start()
        got = [c.token for c in s if c.token is not None]
        happens.join()
        seen.whole(got, right.tokens)
        if s.warning:
            seen.sentence(s.warning)
        if rng.random() < 0.4:  # it comes back
            patience = Patience(60)
            while True:
                r = self.duo.generate(right.prompt, **right.given(30), mode="sync")
                seen.whole(r.tokens, right.tokens[:30])
                if r.timings["draft_n_accepted"] and not r.warning:
                    break
                if patience.is_over():
                    raise WrongError(f"the draft does not come back: {r.warning}")
                time.sleep(0.1)

    def _child(self) -> set[int]:
        pid: Any = getattr(self.duo, "_child").pid  # noqa: B009
        return {pid} if pid else set()

    def happen(self, what: str, rng: random.Random) -> None:
        time.sleep(rng.uniform(0, 0.2))
        if what == "kill":
            self.process.send(signal.SIGKILL)
            self.process.wait()
            self.start()
        elif what == "freeze":
            self.process.send(signal.SIGSTOP)
            time.sleep(lasting(rng))
            self.process.send(signal.SIGCONT)
        elif what == "cut":
            self.way.cut(rng.choice((0, 1, 8, 100, 5000)))
        elif what == "the child":
            for pid in self._child():
                os.kill(pid, signal.SIGKILL)
        else:
            self.way.set(what)
            time.sleep(lasting(rng))
            self.way.set("up")

    def close(self) -> None:
        if self.duo is not None:
            self.duo.close()
            self.way.close()
            self.process.send(signal.SIGTERM)
            self.process.wait()
            self.room.known.discard(self.process.pid)
