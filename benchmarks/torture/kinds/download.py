"""Downloads from a hub that breaks off or lies, over a bad network, onto a full disk; killed, and begun again."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from pathlib import Path

from benchmarks.torture.catalogue import EXACT_ARGS
from benchmarks.torture.judge import Seen, WrongError, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.disk import SmallDisk
from benchmarks.torture.kinds.program import check_text
from benchmarks.torture.proxy import Proxy
from benchmarks.torture.room import Room

sys.path.append(str(Path(__file__).parents[3] / "tests"))  # of hub_server


class Downloads(Kind):
    name = "downloads"
    share = 2
    n_batch = 15
    kills = True

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        from hub_server import REPO, serving, tales

        self.repo, self.hub = REPO, tales()
        self.running = serving(self.hub)
        self.running.__enter__()
        self.way = Proxy(self.hub.url.removeprefix("http://"))
        self.disk = SmallDisk(room.folder / "small")

    def fault(self, rng: random.Random, seen: Seen) -> None:
        right, n = self.room.right(rng, plain=True), 8
        cache = (self.disk.folder if self.disk.is_there else self.room.files) / "hub"
        env = {"HF_ENDPOINT": f"http://{self.way.address}", "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_XET": "1",
               "HF_HUB_DOWNLOAD_TIMEOUT": "20", "HF_HUB_ETAG_TIMEOUT": "20"}  # fmt: skip
        args = ["-m", self.room.models["demo"].target, "-hfd", f"{self.repo}:Q2_K", "-c", "256", *EXACT_ARGS]
        args += [*right.args(n), "--no-display-prompt"]
        what = rng.choice(
            ("cut by the hub", "cut by the network", "wrong size", "killed", "full disk", "busy", "flipped")
        )
        seen.count(what)
        limits: dict[str, int] = {}
        self.hub.chunk_s = 0.002 if what == "killed" else 0.0
        if what == "cut by the hub":
            self.hub.cut = [rng.randrange(2_000_000) for _ in range(rng.choice((1, 1, 2)))]
        elif what == "cut by the network":
            self.way.cut(rng.choice((100, 5000, rng.randrange(2_500_000))))
        elif what == "wrong size":
            self.hub.wrong_size = rng.choice((1, 1000))
        elif what == "busy":
            self.hub.busy, self.hub.retry_after = rng.choice((1, 1, 2)), "0"
        elif what == "flipped":
            self.way.flip(rng)
        elif what == "full disk":
            if self.disk.is_there:
                self.disk.leave(rng.choice((0, 100_000, 2_000_000)))
            else:
                limits = {"RLIMIT_FSIZE": rng.randrange(2_000_000)}
        p = self.room.nursery.start(*args, env=env, limits=limits)
        if what == "killed":
            time.sleep(rng.uniform(0.1, 1.0))
            p.send(rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        code = p.wait()
        check_end(code, p.err, (0, 1, -9, -15, 130, -2) if what == "killed" else (0, 1))
        seen.sentences += code == 1
        if code == 0:
            check_text(p, right, n, seen, whole=True)
        # Afterwards all is well: what is there is gone on with, and is the right file in the end.
        self.hub.cut, self.hub.wrong_size, self.hub.busy, self.hub.chunk_s = [], 0, 0, 0.0
        self.way.heal()
        (self.disk.folder / "filler").unlink(missing_ok=True)
        p = self.room.nursery.start(*args, env=env)
        check_end(p.wait(), p.err, (0,))
        check_text(p, right, n, seen, whole=True)
        draft = self.room.models["demo"].drafts[0]
        assert draft is not None
        found = list(cache.rglob("*Q2_K.gguf"))
        if len(found) != 1 or found[0].read_bytes() != draft.read_bytes():
            raise WrongError(f"what was downloaded is not the file: {found}")
        if rng.random() < 0.8:
            shutil.rmtree(cache, ignore_errors=True)

    def close(self) -> None:
        self.way.close()
        self.running.__exit__(None, None, None)
        self.disk.close()
