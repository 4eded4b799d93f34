"""Texts that are cancelled in this process: closed, dropped, interrupted, timed out, by threads, tasks and hooks."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from benchmarks.torture.beside import beside
from benchmarks.torture.catalogue import N_LONG, Right
from benchmarks.torture.judge import Seen, WrongError
from benchmarks.torture.kind import Kind
from benchmarks.torture.room import Room, check_threads, own_threads
from benchmarks.torture.ways import random_duo, random_way

from duo import Duo, DuoError


class Own(Exception):  # noqa: N818
    """Raised in the middle of a text by the program that asked for it."""


class TimeIsUp(BaseException):
    """Raised by a signal between any two instructions, as KeyboardInterrupt is."""


@contextmanager
def alarm(after_s: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Cancel(Kind):
    name = "cancelled in the process"
    share = 30
    n_batch = 60

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.duo: Duo | None = None
        self.models, self.duo = random_duo(room, rng)
        for _ in range(2):  # threads of teams and of event loops stay
            self.duo.generate("a", max_tokens=4)
        self.n_threads = len(own_threads())
        self.ways: list[Callable[[random.Random, Seen], None]] = [
            self.closes, self.drops, self.leaves, self.thread_closes, self.task_is_cancelled, self.task_breaks,
            self.time_is_up, self.hook_raises, self.hook_stops, self.several,
        ]  # fmt: skip

    def fault(self, rng: random.Random, seen: Seen) -> None:
        way = rng.choice(self.ways)
        seen.count(way.__name__)
        way(rng, seen)
        self.follow(rng, seen)

    def text(self, rng: random.Random) -> Right:
        return self.room.right(rng, self.models)

    def follow(self, rng: random.Random, seen: Seen, n: int = 0) -> None:
        """A text after the fault is whole."""
        n, right = n or rng.choice((6, 12, 30)), self.text(rng)
        r = self.duo.generate(right.prompt, **right.given(n), **random_way(rng, self.duo))
        seen.whole(r.tokens, right.tokens[:n])

    def begun(self, rng: random.Random) -> tuple[Any, Right]:
        right = self.text(rng)
        return self.duo.stream(right.prompt, **right.given(N_LONG), **random_way(rng, self.duo)), right

    # ---- faults

    def closes(self, rng: random.Random, seen: Seen) -> None:
        s, right = self.begun(rng)
        got = [next(s).token for _ in range(rng.choice((0, 0, 1, 3, rng.randrange(N_LONG))))]
        s.close()
        if rng.random() < 0.3:
            s.close()
        seen.ended(got, s.result.tokens, right.tokens)
        if s.finish_reason not in ("cancelled", "length"):
            raise WrongError(f"the finish reason of a closed text is {s.finish_reason}")

    def drops(self, rng: random.Random, seen: Seen) -> None:
        s, right = self.begun(rng)
        got = [next(s).token for _ in range(rng.randrange(20))]
        seen.part(got, right.tokens)
        if rng.random() < 0.3:  # in a cycle, which only the collector finds
            loop: list[Any] = [s]
            loop.append(loop)
            del loop, s
            gc.collect()
        else:
            del s

    def leaves(self, rng: random.Random, seen: Seen) -> None:
        got: list[Any] = []
        s, right = self.begun(rng)
        n = rng.randrange(20)
        with suppress(Own), s:
            for c in s:
                got.append(c.token)
                if len(got) > n:
                    raise Own
        seen.part(got, right.tokens)

    def thread_closes(self, rng: random.Random, seen: Seen) -> None:
        s, right = self.begun(rng)
        after = rng.uniform(0, 0.05)

        def close() -> None:
            time.sleep(after)
            s.close()

        t = threading.Thread(target=close)
        t.start()
        got = [c.token for c in s if c.token is not None]
        t.join()
        seen.ended(got, s.result.tokens, right.tokens)

    def task_is_cancelled(self, rng: random.Random, seen: Seen) -> None:
        right, n_tasks = self.text(rng), rng.randint(1, self.duo.n_parallel + 1)
        way, after = random_way(rng, self.duo), rng.uniform(0, 0.06)

        async def run() -> None:
            tasks = [
                asyncio.ensure_future(self.duo.agenerate(right.prompt, **right.given(N_LONG), **way))
                for _ in range(n_tasks)
            ]
            await asyncio.sleep(after)
            for task in tasks[: rng.randint(1, n_tasks)]:
                task.cancel()
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(done, asyncio.CancelledError):
                    seen.cut += 1
                elif isinstance(done, BaseException):
                    raise done
                else:
                    seen.whole(done.tokens, right.tokens)

        asyncio.run(run())

    def task_breaks(self, rng: random.Random, seen: Seen) -> None:
        right, way, n = self.text(rng), random_way(rng, self.duo), rng.randrange(30)
        how = rng.randrange(3)
        got: list[Any] = []

        async def read() -> None:
            stream = self.duo.astream(right.prompt, **right.given(N_LONG), **way)
            async for c in stream:
                if c.token is not None:
                    got.append(c.token)
                if how and len(got) > n:
                    if how == 1:
                        raise Own
                    break
            if how == 2:
                await stream.aclose()

        async def run() -> None:
            with suppress(asyncio.TimeoutError, Own):
                await asyncio.wait_for(read(), n / 1000 if how == 0 else 60)

        asyncio.run(run())
        seen.part(got, right.tokens)

    def time_is_up(self, rng: random.Random, seen: Seen) -> None:
        """As Ctrl-C: an exception at any place of duo's own code."""
        right, way = self.text(rng), random_way(rng, self.duo)
        got: list[Any] = []
        try:
            with alarm(rng.choice((0.0005, 0.002, 0.01, 0.05)) * rng.uniform(0.5, 2)):
                if rng.random() < 0.5:
                    got = list(self.duo.generate(right.prompt, **right.given(N_LONG), **way).tokens)
                else:
                    for c in self.duo.stream(right.prompt, **right.given(N_LONG), **way):
                        if c.token is not None:
                            got.append(c.token)
        except TimeIsUp:
            pass
        gc.collect()  # the stream may be in a traceback
        seen.part(got, right.tokens)

    def hook_raises(self, rng: random.Random, seen: Seen) -> None:
        right, n = self.text(rng), rng.randrange(1, 30)
        called = [0]

        def processor(_ids: Any, scores: Any) -> Any:
            called[0] += 1
            if called[0] > n:
                raise Own
            return scores

        try:
            self.duo.generate(right.prompt, **right.given(N_LONG), logits_processor=processor)
            raise WrongError("what a hook raised was lost")
        except Own:
            pass
        seen.cut += 1

    def hook_stops(self, rng: random.Random, seen: Seen) -> None:
        right, until = self.text(rng), time.monotonic() + rng.uniform(0, 0.05)
        r = self.duo.generate(
            right.prompt, **right.given(N_LONG), stopping_criteria=lambda _i, _s: time.monotonic() > until
        )
        seen.part(r.tokens, right.tokens)

    def several(self, rng: random.Random, seen: Seen) -> None:
        """Texts in a batch: one is closed, the others are complete."""
        n_threads = self.duo.n_parallel + rng.randrange(3)
        dice = [random.Random(rng.random()) for _ in range(n_threads)]
        results: list[Seen] = [Seen() for _ in dice]

        def write(i: int) -> None:
            if dice[i].random() < 0.4:
                self.closes(dice[i], results[i])
            else:
                self.follow(dice[i], results[i], 30)

        with beside(*(partial(write, i) for i in range(n_threads))):
            pass
        for s in results:
            seen.add(s)

    def close(self) -> None:
        n = self.n_threads
        self.duo.close()
        try:
            self.duo.generate("a")
            raise WrongError("a closed Duo writes")
        except DuoError:
            pass
        self.duo = None
        check_threads(n)
