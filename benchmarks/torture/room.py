"""Where the faults of one batch happen: a process of its own, a folder of its own, and what it may find there."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import Models, Right
from benchmarks.torture.judge import WrongError
from benchmarks.torture.nursery import Nursery
from benchmarks.torture.process import Patience, become_reaper, children, command_of, mount_for_itself, state_of

SETTLE_S = 15.0  # for what ends by itself
SHARED = Path("/dev/shm")  # files there are memory


def shared_file(pid: int) -> Path:
    """A file of one worker that is written again and again; on a disk, where this system has no such folder."""
    return (SHARED if SHARED.is_dir() else Path(tempfile.gettempdir())) / f"torture-{pid}.gguf"


@dataclass
class Room:
    folder: Path
    models: Mapping[str, Models]
    rights: Mapping[str, list[Right]]
    nursery: Nursery
    known: set[int] = field(default_factory=set)  # children that may be there
    seed: str = ""

    @classmethod
    def open(cls, folder: Path, cache: Path, models: Mapping[str, Models], rights: Mapping[str, list[Right]]) -> Room:
        """Call it in a fresh process with one thread."""
        for name in ("tmp", "said", "cache", "files"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(cache, folder / "cache", dirs_exist_ok=True)
        os.environ |= {"TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "cache"), "TORTURE": str(folder)}
        tempfile.tempdir = None
        become_reaper()
        mount_for_itself()
        nursery = Nursery(folder / "said")
        return cls(folder, models, rights, nursery, {nursery.pid})

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def right(self, rng: random.Random, models: str = "demo", *, plain: bool = False) -> Right:
        """plain: one whose beginnings are whole characters."""
        return rng.choice([r for r in self.rights[models] if r.is_plain or not plain])

    def check_children(self, kept: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        """Raises WrongError: a process is left that nobody waits for. kept: those that live on."""
        patience = Patience(SETTLE_S)
        while left := children() - self.known - kept:
            for pid in left:
                if state_of(pid) == "Z":
                    os.waitpid(pid, 0)
            if not (left := children() - self.known - kept):
                return
            if patience.is_over():
                names = {pid: command_of(pid) for pid in left}
                for pid in left:
                    os.kill(pid, 9)
                raise WrongError(f"processes are left: {names}")
            time.sleep(0.02)

    def check_files(self, *, killed: bool = False) -> None:
        """Raises WrongError: temporary files are left. killed: a process was killed, which cannot clear up."""
        tmp = self.folder / "tmp"
        left = sorted(p.name for p in tmp.iterdir()) + sorted(p.name for p in self.files.glob(".duo-*"))
        for p in (*tmp.iterdir(), *self.files.glob(".duo-*")):
            shutil.rmtree(p, ignore_errors=True) if p.is_dir() else p.unlink(missing_ok=True)
        if left and not killed:
            raise WrongError(f"temporary files are left: {left}")

    def close(self) -> None:
        self.nursery.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def own_threads() -> list[str]:
    """Names of this process's threads, as the system knows them."""
    found = []
    for name in os.listdir("/proc/self/task"):
        try:
            found.append(Path(f"/proc/self/task/{name}/comm").read_text().strip())
        except OSError:
            continue
    return sorted(found)


def check_threads(most: int) -> None:
    """Raises WrongError: threads are left."""
    patience = Patience(SETTLE_S)
    while True:
        python = [t.name for t in threading.enumerate() if t.name.startswith("duo")]
        found = own_threads()
        if not python and len(found) <= most:
            return
        if patience.is_over():
            raise WrongError(f"threads are left: {python}; {found}, {most} were there before")
        time.sleep(0.02)


Options = dict[str, Any]
