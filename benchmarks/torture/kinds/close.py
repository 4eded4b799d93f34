"""A Duo that is closed while texts run, dropped, loaded twice, or whose load is interrupted."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.torture.beside import beside
from benchmarks.torture.catalogue import EXACT, Right
from benchmarks.torture.judge import Seen
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.cancel import Own, TimeIsUp, alarm
from benchmarks.torture.room import Room, check_threads, own_threads
from benchmarks.torture.ways import random_duo, random_models, random_way

from duo import Duo, DuoError


class Close(Kind):
    name = "closed while texts run"
    share = 8
    n_batch = 25
    spawns = False

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        for _ in range(2):
            with Duo(n_ctx=256, n_threads=2, n_threads_draft=1, **EXACT) as d:
                d.generate("a", max_tokens=4)
        self.n_threads = len(own_threads())
        self.faults: list[Callable[[random.Random, Seen], None]] = [
            self.by_thread, self.by_thread, self.dropped, self.two, self.load_is_interrupted, self.load_is_refused,
            self.from_tasks,
        ]  # fmt: skip

    def fault(self, rng: random.Random, seen: Seen) -> None:
        fault = rng.choice(self.faults)
        seen.count(fault.__name__)
        fault(rng, seen)
        gc.collect()
        # Teams of several threads are the system's own (OpenMP); they wait for the next one.
        check_threads(self.n_threads + 2)

    def writer(self, d: Duo, right: Right, way: dict[str, Any], seen: Seen) -> None:
        """Reads a text until it ends, or its Duo is closed."""
        got: list[Any] = []
        try:
            for c in d.stream(right.prompt, **right.given(), **way):
                if c.token is not None:
                    got.append(c.token)
            seen.part(got, right.tokens)
        except DuoError as e:
            seen.ended(got, got if e.result is None else e.result.tokens, right.tokens)
            seen.sentence(e)

    def by_thread(self, rng: random.Random, seen: Seen) -> None:
        name, d = random_duo(self.room, rng)
        writers = [
            partial(self.writer, d, self.room.right(rng, name), random_way(rng, d), seen)
            for _ in range(rng.randint(1, d.n_parallel + 1))
        ]
        with beside(*writers):
            time.sleep(rng.choice((0.0, 0.002, 0.03)) * rng.random())
            with beside(*[d.close] * rng.choice((1, 1, 2))):
                pass

    def from_tasks(self, rng: random.Random, seen: Seen) -> None:
        name, d = random_duo(self.room, rng)
        right = self.room.right(rng, name)

        async def run() -> None:
            tasks = [asyncio.ensure_future(d.agenerate(right.prompt, **right.given())) for _ in range(3)]
            await asyncio.sleep(rng.uniform(0, 0.03))
            await asyncio.to_thread(d.close)
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(done, DuoError):
                    seen.sentence(done)
                elif isinstance(done, BaseException):
                    raise done
                else:
                    seen.whole(done.tokens, right.tokens)

        asyncio.run(run())

    def dropped(self, rng: random.Random, seen: Seen) -> None:
        name, d = random_duo(self.room, rng)
        right = self.room.right(rng, name)
        s = d.stream(right.prompt, **right.given(), **random_way(rng, d))
        got = [next(s).token for _ in range(rng.randrange(12))]
        seen.part(got, right.tokens)
        if rng.random() < 0.5:
            del d, s
        else:
            del s, d

    def two(self, rng: random.Random, seen: Seen) -> None:
        """Two in one process; one is closed, the other writes on."""
        (a_name, a), (b_name, b) = random_duo(self.room, rng), random_duo(self.room, rng)
        of_a, of_b = self.room.right(rng, a_name), self.room.right(rng, b_name)
        got = []
        with beside(partial(self.writer, a, of_a, random_way(rng, a), seen)):
            for i, c in enumerate(b.stream(of_b.prompt, **of_b.given(60), **random_way(rng, b))):
                if c.token is not None:
                    got.append(c.token)
                if i == 10:
                    a.close()
        seen.whole(got, of_b.tokens[:60])
        b.close()

    def load_is_interrupted(self, rng: random.Random, seen: Seen) -> None:
        models, draft = random_models(self.room, rng)
        n = rng.randrange(1, 30)
        called = [0]

        def progress(_path: str, _share: float) -> None:
            called[0] += 1
            if called[0] >= n:
                raise Own

        d = None
        try:
            if rng.random() < 0.5:
                d = Duo(models.target, draft, n_ctx=256, progress=progress, **EXACT)
            else:
                with alarm(rng.uniform(0.0005, 0.08)):
                    d = Duo(models.target, draft, n_ctx=256, **EXACT)
        except (Own, TimeIsUp):
            seen.cut += 1
            gc.collect()
            return
        assert d is not None
        right = self.room.right(rng, models.name)
        seen.whole(d.generate(right.prompt, **right.given(8)).tokens, right.tokens[:8])
        d.close()

    def load_is_refused(self, rng: random.Random, seen: Seen) -> None:
        wrong: dict[str, Any] = rng.choice((
            {"n_ctx": 2**30}, {"trace": "/no/such/folder/x"}, {"chat_template": "{% if"},
            {"type_k": "q4_0", "flash_attn": "off"}, {"loras": ["/no/such/file"]}, {"cpu_kernels": "x"},
            {"n_ctx": -5}, {"devices": "CUDA9"},
        ))  # fmt: skip
        models, draft = random_models(self.room, rng)
        try:
            with Duo(models.target, draft, **{"n_ctx": 256, **EXACT, **wrong}) as d:
                d.generate("a", max_tokens=2)
        except (DuoError, TypeError) as e:
            seen.sentence(e)
