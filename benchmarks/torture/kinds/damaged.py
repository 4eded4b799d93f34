"""Files that duo keeps, damaged before it reads them: prompt caches, states, and what it remembers of this machine."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import EXACT, N_CTX
from benchmarks.torture.judge import Seen, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.program import check_text, program_args
from benchmarks.torture.room import Room
from benchmarks.torture.ways import random_models, random_way

from duo import Duo, DuoError


def damaged(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not out:
            break
        at, how = rng.randrange(len(out)), rng.randrange(6)
        if rng.random() < 0.5:
            at = min(at, rng.randrange(400))
        if how == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del out[at : at + rng.choice((1, 8, 1000))]
        elif how == 2:
            out[at:at] = rng.randbytes(rng.choice((1, 8, 1000)))
        elif how == 3:
            del out[at:]
        elif how == 4:
            out[at : at + 8] = rng.choice((0, 1, 2**32, 2**63, 2**64 - 1)).to_bytes(8, "little")
        else:
            out[at] = rng.randrange(256)
    return bytes(out)


def other_json(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """The same with one part of another kind."""
    odd = (None, [], {}, "", "x", -1, 1e308, 2**70, True, [[]], {"a": 1}, "\ud800", 0, float("nan"), -1e-300)
    if depth > 5 or rng.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return rng.choice(odd)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        return {**value, key: other_json(rng, value[key], depth + 1)}
    i = rng.randrange(len(value))
    return [*value[:i], other_json(rng, value[i], depth + 1), *value[i + 1 :]]


class Damaged(Kind):
    name = "damaged files of duo"
    share = 10
    n_batch = 50

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.models, draft = random_models(room, rng)
        self.duo = Duo(self.models.target, draft, n_ctx=N_CTX, n_threads=1, n_threads_draft=1, **EXACT)
        self.caches: list[bytes] = []
        self.path = room.files / "prompt.cache"
        for everything in (False, True):
            right = room.right(rng, self.models.name)
            self.path.unlink(missing_ok=True)
            self.duo.generate(right.prompt, prompt_cache=self.path, prompt_cache_all=everything, **right.given(20))
            self.caches.append(self.path.read_bytes())
        self.state = self.duo.save_state()
        self.records = self._records()

    def _records(self) -> dict[str, bytes]:
        """What a run leaves in duo's cache folder."""
        self.room.nursery.start("-p", "a", "-n", "60", "--ignore-eos").wait()
        folder = self.room.folder / "cache" / "duo"
        return {p.name: p.read_bytes() for p in folder.glob("*.json")}

    def fault(self, rng: random.Random, seen: Seen) -> None:
        how = rng.random()
        if how < 0.75:
            seen.count("prompt cache")
            self.prompt_cache(rng, seen)
        elif how < 0.9:
            seen.count("saved state")
            self.saved_state(rng, seen)
        else:
            seen.count("records of the cache folder")
            self.memories(rng, seen)

    def prompt_cache(self, rng: random.Random, seen: Seen) -> None:
        self.path.write_bytes(damaged(rng, rng.choice(self.caches)))
        if rng.random() < 0.5:
            self.duo.generate("The", max_tokens=1)  # what the cache has is not there already
        right, n = self.room.right(rng, self.models.name), rng.choice((6, 30))
        r = self.duo.generate(right.prompt, prompt_cache=self.path, **right.given(n), **random_way(rng, self.duo))
        seen.whole(r.tokens, right.tokens[:n])
        if r.warning:
            seen.sentence(r.warning)

    def saved_state(self, rng: random.Random, seen: Seen) -> None:
        """Bytes of a cache that were changed; a pickle itself is a program, which nobody should load from others."""
        state = pickle.loads(pickle.dumps(self.state))
        part = state.target if rng.random() < 0.6 or state.draft is None else state.draft
        object.__setattr__(part, "saved", damaged(rng, part.saved))
        try:
            self.duo.load_state(state)
        except DuoError as e:
            seen.sentence(e)
        right, n = self.room.right(rng, self.models.name), rng.choice((6, 30))
        seen.whole(self.duo.generate(right.prompt, **right.given(n)).tokens, right.tokens[:n])

    def memories(self, rng: random.Random, seen: Seen) -> None:
        """guard.json, pairs.json and the others: whatever they hold, a run writes the right text."""
        cache = self.room.folder / "cache-damaged"
        shutil.rmtree(cache, ignore_errors=True)
        (cache / "duo").mkdir(parents=True)
        for name, data in self.records.items():
            if rng.random() < 0.5:
                data = json.dumps(other_json(rng, json.loads(data))).encode("utf-8", "surrogatepass")
            elif rng.random() < 0.5:
                data = damaged(rng, data)
            (cache / "duo" / name).write_bytes(data)
        if rng.random() < 0.1:
            shutil.rmtree(cache)
            Path(cache).write_bytes(b"")  # a file where the folder should be
        right, n = self.room.right(rng, plain=True), rng.choice((10, 40))
        p = self.room.nursery.start(*program_args(self.room, rng, right, n), env={"XDG_CACHE_HOME": str(cache)})
        check_end(p.wait(), p.err, (0,))
        check_text(p, right, n, seen, whole=True)
        shutil.rmtree(cache, ignore_errors=True)
        if cache.is_file():
            cache.unlink()

    def close(self) -> None:
        self.duo.close()
