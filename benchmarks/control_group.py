"""A control group of Linux, of version 1 or 2, that limits memory and what is read from a disk. It needs root."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
BYTES_READ = """
import sys, time
began, left = time.monotonic(), int(sys.argv[2])
with open(sys.argv[1], "rb", buffering=0) as f:
    while left > 0 and (piece := f.read(8 << 20)):
        left -= len(piece)
print((int(sys.argv[2]) - left) / (time.monotonic() - began))
"""  # in a second, of a file


class NoControlGroupError(Exception):
    """It cannot be made here; the text says why."""


class ControlGroup:
    """Its page cache counts as memory. Leaving it as a context manager removes it."""

    def __init__(self, name: str) -> None:
        self._is_v1 = (ROOT / "memory").is_dir()
        self._memory = (ROOT / "memory" if self._is_v1 else ROOT) / name
        self._disk = (ROOT / "blkio" if self._is_v1 else ROOT) / name
        self._folders = list(dict.fromkeys((self._memory, self._disk)))
        try:
            if not self._is_v1:
                with suppress(OSError):
                    (ROOT / "cgroup.subtree_control").write_text("+memory +io")
            for folder in self._folders:
                folder.mkdir()
        except OSError as e:
            self.remove()
            raise NoControlGroupError(f"control groups cannot be made here ({e}); they need root") from e

    def __enter__(self) -> ControlGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def inside(self, *command: str | Path) -> list[str | Path]:
        """The command that runs this one there."""
        enter = "".join(f"echo $$ > {folder}/cgroup.procs && " for folder in self._folders)
        return ["sh", "-c", enter + 'exec "$0" "$@"', *command]

    def limit_memory(self, n_bytes: int) -> None:
        """Raises NoControlGroupError: the system refuses, for example because its processes need more."""
        self._write(self._memory / ("memory.limit_in_bytes" if self._is_v1 else "memory.max"), str(n_bytes))

    def limit_reading(self, file: Path, per_second: int) -> None:
        """From the disk that has this file."""
        if self._is_v1:
            self._write(self._disk / "blkio.throttle.read_bps_device", f"{disk_of(file)} {per_second}")
        else:
            self._write(self._disk / "io.max", f"{disk_of(file)} rbps={per_second}")

    @property
    def n_used(self) -> int:
        """Bytes, with the page cache."""
        return int((self._memory / ("memory.usage_in_bytes" if self._is_v1 else "memory.current")).read_text())

    @property
    def n_own(self) -> int:
        """Bytes that are not of files, so they stay in memory."""
        name = "total_rss" if self._is_v1 else "anon"
        lines = (self._memory / "memory.stat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.split()[0] == name))

    def remove(self) -> None:
        for folder in self._folders:
            for _ in range(100):  # the last process may still be ending
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)

    @staticmethod
    def _write(file: Path, text: str) -> None:
        try:
            file.write_text(text)
        except OSError as e:
            raise NoControlGroupError(f"{file} does not take '{text}' ({e}); is this controller there?") from e


def disk_of(file: Path) -> str:
    """The numbers of the disk that has this file, as 8:0. Raises NoControlGroupError: it has none."""
    number = file.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if not device.exists():
        raise NoControlGroupError(f"{file} is on no disk that can be limited; choose a folder on another file system")
    whole = device.parent if (device / "partition").exists() else device
    return (whole / "dev").read_text().strip()
