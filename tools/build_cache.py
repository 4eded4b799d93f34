"""Builds that are kept in the user's cache, so that another clone need not compile: ~/.cache/duo/builds.

An entry is a folder with the file, what it was built with (facts), and its sum. It is written aside and renamed, and a
file whose sum is wrong counts as none. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "DUO_BUILD_CACHE"  # off, or a folder
N_KEPT = 6  # of a kind; the ones that were used last
OLD_S = 86400.0  # after which what was written aside belongs to nobody
_FACTS, _SUM = "facts", "sha256"


class BuildCache:
    """The builds of one kind."""

    def __init__(self, kind: str, environ: Mapping[str, str] = os.environ) -> None:
        self.kind = kind
        self.folder = _folder(environ)

    def find(self, facts: list[str]) -> Path | None:
        """The file that was built with these facts, if it is whole."""
        entry = self._entry(facts)
        if entry is None or not (entry / _SUM).is_file():
            return None
        try:
            wanted, _, name = (entry / _SUM).read_text("utf-8").strip().partition("  ")
            if "/" in name or sum_of(entry / name) != wanted:
                return None
        except (OSError, ValueError):
            return None
        with suppress(OSError):
            os.utime(entry)
        return entry / name

    def keep(self, facts: list[str], file: Path) -> str:
        """Keeps a copy of a file, in place of an older one. Returns why it could not, or nothing."""
        entry = self._entry(facts)
        if entry is None:
            return ""
        aside = entry.with_name(f"{entry.name}.{secrets.token_hex(4)}.part")
        try:
            aside.mkdir(parents=True)
            shutil.copyfile(file, aside / file.name)
            (aside / _FACTS).write_text("\n".join(facts) + "\n", "utf-8")
            (aside / _SUM).write_text(f"{sum_of(file)}  {file.name}\n", "utf-8")
            if entry.exists():
                entry.rename(aside.with_suffix(".old"))
            aside.rename(entry)
        except OSError as e:
            return f"the build is not kept in {self.folder}: {e.strerror or e}"
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(aside.with_suffix(".old"), ignore_errors=True)
        self._forget_older()
        return ""

    def _entry(self, facts: list[str]) -> Path | None:
        key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:20]
        return None if self.folder is None else self.folder / f"{self.kind}-{key}"

    def _forget_older(self) -> None:
        assert self.folder is not None
        entries = [(f.stat().st_mtime, f) for f in self.folder.glob(f"{self.kind}-*") if f.is_dir()]
        whole = sorted(((t, f) for t, f in entries if not f.suffix), reverse=True)
        left = [f for t, f in entries if f.suffix and t < time.time() - OLD_S]
        for folder in [*left, *(f for _, f in whole[N_KEPT:])]:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(environ: Mapping[str, str]) -> Path | None:
    """None: nothing is to be kept, or this user has no home."""
    chosen = environ.get(VARIABLE, "")
    if chosen in ("off", "0", "no"):
        return None
    if chosen:
        return Path(chosen).absolute()
    home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "duo", "builds") if os.path.isabs(home) else None


def sum_of(file: Path) -> str:
    total = hashlib.sha256()
    with file.open("rb") as data:
        while piece := data.read(1 << 20):
            total.update(piece)
    return total.hexdigest()
