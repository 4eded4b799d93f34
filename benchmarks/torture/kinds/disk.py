"""A disk that is full while duo writes: prompt caches, traces, logs, records, models, standard output."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import EXACT, N_CTX
from benchmarks.torture.judge import Seen, WrongError, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.program import check_text, check_trace, program_args
from benchmarks.torture.room import Room

from duo import Duo

MS_NOSUID = 2
_libc = ctypes.CDLL(None, use_errno=True)


class SmallDisk:
    """A file system in memory whose size can be chosen, if this process may mount one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.is_there = os.geteuid() == 0 and self._mount(b"size=4m") == 0

    def _mount(self, options: bytes, flags: int = 0) -> int:
        found: int = _libc.mount(b"torture", os.fsencode(self.folder), b"tmpfs", MS_NOSUID | flags, options)
        return found

    def leave(self, n_free: int) -> None:
        """Fills it until about n_free bytes are free."""
        filler = self.folder / "filler"
        filler.unlink(missing_ok=True)
        s = os.statvfs(self.folder)
        n = max(0, s.f_bavail * s.f_frsize - n_free)
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, n) if n else None

    def clear(self) -> None:
        for p in self.folder.iterdir():
            shutil.rmtree(p) if p.is_dir() else p.unlink()

    def close(self) -> None:
        if self.is_there:
            _libc.umount2(os.fsencode(self.folder), 2)


class Disk(Kind):
    name = "full disk"
    share = 7
    n_batch = 25

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        self.disk = SmallDisk(room.folder / "small")
        self.duo = Duo(n_ctx=N_CTX, n_threads=1, n_threads_draft=1, **EXACT)

    def fault(self, rng: random.Random, seen: Seen) -> None:
        how = rng.random()
        if self.disk.is_there and how < 0.5:
            seen.count("prompt cache of this process")
            self.in_process(rng, seen)
        elif how < 0.8:
            seen.count("program")
            self.program(rng, seen)
        else:
            seen.count("a model that is made")
            self.records(rng, seen)

    def in_process(self, rng: random.Random, seen: Seen) -> None:
        """The prompt cache, again and again; what is there before must stay as good as it was."""
        path, right = self.disk.folder / "prompt.cache", self.room.right(rng)
        self.disk.clear()
        n = rng.choice((5, 30))
        if rng.random() < 0.5:  # an earlier file
            r = self.duo.generate(right.prompt[:12], prompt_cache=path, max_tokens=2, temperature=0)
        before = path.read_bytes() if path.exists() else b""
        self.disk.leave(rng.choice((0, 4096, 100_000, rng.randrange(2_000_000), 4_000_000)))
        everything = rng.random() < 0.3
        r = self.duo.generate(right.prompt, prompt_cache=path, prompt_cache_all=everything, **right.given(n))
        seen.whole(r.tokens, right.tokens[:n])
        if r.warning:
            seen.sentence(r.warning)
            if (path.read_bytes() if path.exists() else b"") != before:
                raise WrongError("a prompt cache that could not be written is not the old one")
        left = [p.name for p in self.disk.folder.iterdir() if p.name.startswith(".duo-")]
        if left:
            raise WrongError(f"files are left: {left}")
        (self.disk.folder / "filler").unlink(missing_ok=True)
        r = self.duo.generate(right.prompt, prompt_cache=path, **right.given(n))
        seen.whole(r.tokens, right.tokens[:n])

    def program(self, rng: random.Random, seen: Seen) -> None:
        right, n = self.room.right(rng, plain=True), rng.choice((10, 60))
        folder = self.disk.folder
        limits: dict[str, int] = {}
        if self.disk.is_there:
            self.disk.clear()
            self.disk.leave(rng.choice((0, 4096, 20_000, rng.randrange(1_000_000))))
        else:
            limits = {"RLIMIT_FSIZE": rng.choice((0, 100, 4096, rng.randrange(1_000_000)))}
        if rng.random() < 0.3:
            limits = {"RLIMIT_FSIZE": rng.choice((100, 4096, 20_000))}
        trace, cache, log = folder / "trace.json", folder / "prompt.cache", folder / "log"
        args = program_args(self.room, rng, right, n)
        for flag, path in (("--trace", trace), ("--prompt-cache", cache), ("--log-file", log)):
            args += [flag, path] if rng.random() < 0.5 else []
        env = {"XDG_CACHE_HOME": str(folder), "TMPDIR": str(folder)} if rng.random() < 0.3 else {}
        stdout = None
        if rng.random() < 0.3:
            stdout = os.open(folder / "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        p = self.room.nursery.start(*args, limits=limits, env=env, stdout=stdout)
        code = p.wait()
        if stdout is not None:
            os.close(stdout)
            p.out_path = folder / "out"
        check_end(code, p.err, (0, 1))
        if code == 1:
            seen.sentences += 1
            seen.text_part(p.out.removesuffix("\n") if len(p.out) > len(right.text(n)) else p.out, right.text(n))
        else:
            check_text(p, right, n, seen, whole=True)
            seen.sentences += "could not be written" in p.err or "cannot be written" in p.err
        check_trace(trace)
        left = [x.name for x in folder.iterdir() if x.name.startswith(".duo-")]
        if left:
            raise WrongError(f"files are left: {left}")

    def records(self, rng: random.Random, seen: Seen) -> None:
        """Models that duo makes."""
        folder = self.disk.folder
        draft = self.room.models["demo"].drafts[0]
        limits: dict[str, int] = {}
        if self.disk.is_there:
            self.disk.clear()
            self.disk.leave(rng.choice((0, 4096, rng.randrange(3_000_000))))
        else:
            limits = {"RLIMIT_FSIZE": rng.randrange(1_000_000)}
        out = folder / "made.gguf"
        args: list[Any] = rng.choice(
            (["dev", "random-model", draft, "-o", out], ["dev", "widen", draft, "-o", out, "--size", "4M"])
        )
        p = self.room.nursery.start(*args, limits=limits)
        code = p.wait()
        check_end(code, p.err, (0, 1))
        seen.sentences += code
        if code == 0 and not out.exists():
            raise WrongError("a model was made and is not there")

    def close(self) -> None:
        self.duo.close()
        self.disk.close()
