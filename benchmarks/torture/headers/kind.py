"""A mutated header is read in this process, often checked as `duo check` does, and sometimes the model is loaded."""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

from benchmarks.torture.catalogue import EXACT
from benchmarks.torture.headers.mutate import mutated
from benchmarks.torture.headers.parts import Parts, parts_of
from benchmarks.torture.judge import Seen, WrongError
from benchmarks.torture.kind import Kind
from benchmarks.torture.room import Room, shared_file

from duo import Duo, DuoError
from duo.models.demo import demo_pair
from duo.models.head import Head
from duo.models.header import read_header
from duo.placement.compatibility import check_pair
from duo.placement.devices import devices

# Of those that can be read, so many are looked at more closely.
CHECKED, LOADED = 0.5, 0.25
N_MEMORY = 8 << 30


class Headers(Kind):
    name = "mutated headers"
    share = 1
    n_batch = 400
    spawns = False

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        resource.setrlimit(resource.RLIMIT_AS, (N_MEMORY, N_MEMORY))  # a header must not make duo take all there is
        self.target, draft = demo_pair()
        self.devices = devices()
        recurrent = room.models["recurrent"].target
        self.sources: list[tuple[str, Parts, memoryview]] = []
        for name, path in (
            ("target", self.target),
            ("draft", draft),
            ("head", head_of(room)),
            ("recurrent", recurrent),
        ):
            data = path.read_bytes()
            parts, begin = parts_of(data)
            if parts.raw != data[:begin]:
                raise WrongError(f"{path} cannot be taken apart")
            self.sources.append((name, parts, memoryview(data)[begin:]))
        self.path = shared_file(os.getpid())

    def fault(self, rng: random.Random, seen: Seen) -> None:
        which, parts, data = rng.choices(self.sources, (3, 4, 2, 2))[0]
        done, raw, n = mutated(rng, parts)
        closely = rng.random()
        with open(self.path, "wb") as file:
            file.write(raw[:n])
            file.truncate(n)  # weights that nobody reads are a hole
        print(f"{which}: {', '.join(done)}", flush=True)
        try:
            h = read_header(self.path)
            Head.of(h)
            repr((h.n_trunk, h.n_mtp, h.has_trunk, h.n_parameters, h.weight_type))
        except DuoError as e:
            seen.sentence(e)
            seen.count("refused by the reader")
            return
        seen.count("read")
        if closely < CHECKED:
            self._check(which, seen)
        if closely < LOADED:
            with open(self.path, "r+b") as file:
                file.seek(len(raw))
                file.write(data[: max(0, n - len(raw))])
            self._load(which, seen)

    def _pair(self, which: str) -> tuple[Path, Path | None]:
        return (self.target, self.path) if which == "head" else (self.path, None)

    def _check(self, which: str, seen: Seen) -> None:
        target, draft = (self.path, self.target) if which != "head" else (self.target, self.path)
        try:
            repr(check_pair(target, draft, self.devices).as_dict())
            seen.count("checked")
        except DuoError as e:
            seen.sentence(e)
            seen.count("refused by the check")

    def _load(self, which: str, seen: Seen) -> None:
        target, draft = self._pair(which)
        seen.count("loads tried")
        try:
            with Duo(target, draft, n_ctx=64, n_threads=1, n_threads_draft=1, **EXACT) as d:
                d.generate("Once upon a time", max_tokens=4, temperature=0)
            seen.count("loaded")
        except DuoError as e:
            seen.sentence(e)
            seen.count("refused by the load")

    def close(self) -> None:
        self.path.unlink(missing_ok=True)


def head_of(room: Room) -> Path:
    return next(d for d in room.models["demo"].drafts if d is not None and "eagle3" in d.name)
