"""A process that may not have more memory: while it imports, loads, reads a prompt, or writes."""

from __future__ import annotations

import random
from typing import Any

from benchmarks.torture.judge import Seen, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.program import check_text, program_args
from benchmarks.torture.process import Process
from benchmarks.torture.room import Room

# glibc ends a process whose new thread finds no memory for its thread-local data; nothing can be done about it.
NO_THREAD_DATA = "cannot allocate memory for thread-local data: ABORT"


class Memory(Kind):
    name = "out of memory"
    share = 5
    n_batch = 25

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.used = self._used()

    def _used(self) -> int:
        """Bytes of address space of a process that has imported everything."""
        p = self.room.nursery.start(call="benchmarks.torture.kinds.memory:tell_size")
        p.wait()
        return int(p.out)

    def fault(self, rng: random.Random, seen: Seen) -> None:
        right, n = self.room.right(rng, plain=True), rng.choice((8, 60))
        args: list[Any] = program_args(self.room, rng, right, n)
        args[args.index("-c") + 1] = str(rng.choice((512, 512, 4096)))
        # From too little to begin to enough for all: a run takes a few hundred MB, most of it stacks of threads.
        spare = int(2 ** rng.uniform(20, 30))
        p: Process = self.room.nursery.start(*args, limits={"RLIMIT_AS": self.used + spare})
        code = p.wait()
        if code == 127 and NO_THREAD_DATA in p.err:
            seen.count("ended by the C library, without memory for thread-local data")
        else:
            check_end(code, p.err, (0, 1))
            seen.sentences += code
        if code != 0:
            # The program ends the line before it says what is wrong.
            out = p.out if right.text(n).startswith(p.out) else p.out.removesuffix("\n")
            seen.text_part(out, right.text(n))
        else:
            check_text(p, right, n, seen, whole=True)


def tell_size() -> int:
    with open("/proc/self/status") as file:
        print(next(int(line.split()[1]) for line in file if line.startswith("VmSize")) * 1024)
    return 0
