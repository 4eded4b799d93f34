"""Builds that are kept in the user's cache, so that another clone need not compile: ~/.cache/duo/builds.

An entry is a folder with the file, what it was built with (facts), and its sum. It is written aside and renamed, and a
file whose sum is wrong counts as none. Files that somebody else could have written are not used: they are code.
Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "DUO_BUILD_CACHE"  # off, on, or a folder
_OFF, _ON = ("off", "0", "no", "false"), ("", "on", "1", "yes", "true")
N_KEPT = 6  # of a kind; the ones that were used last
OLD_S = 86400.0  # after which what was written aside belongs to nobody
_FACTS, _SUM = "facts", "sha256"


class BuildCache:
    """The builds of one kind. fault: why there is no folder although the user did not choose so; or empty."""

    def __init__(self, kind: str, environ: Mapping[str, str] = os.environ) -> None:
        self.kind = kind
        self.folder = _folder(environ)
        self.fault = "" if self.folder is None else distrust(self.folder)
        if self.fault:
            self.folder = None

    def find(self, facts: list[str]) -> Path | None:
        """The file that was built with these facts, if it is whole."""
        entry = self._entry(facts)
        if entry is None:
            return None
        try:
            if not (entry / _SUM).is_file():
                return None
            wanted, _, name = (entry / _SUM).read_text("utf-8").strip().partition("  ")
            if "/" in name or distrust(entry / _SUM) or distrust(entry / name) or sum_of(entry / name) != wanted:
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
            _make(aside)
            if why := distrust(aside):
                return why
            shutil.copyfile(file, aside / file.name)
            (aside / _FACTS).write_text("\n".join(facts) + "\n", "utf-8")
            (aside / _SUM).write_text(f"{sum_of(file)}  {file.name}\n", "utf-8")
            for made in aside.iterdir():
                made.chmod(0o644)  # whatever the user's umask is
            if entry.exists():
                entry.rename(aside.with_suffix(".old"))
            aside.rename(entry)
        except OSError as e:
            if self.find(facts) is not None:  # somebody kept the same build meanwhile
                return ""
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
        entries = []
        for f in self.folder.glob(f"{self.kind}-*"):
            with suppress(OSError):  # another process has removed it
                if f.is_dir():
                    entries.append((f.stat().st_mtime, f))
        whole = sorted(((t, f) for t, f in entries if not f.suffix), reverse=True)
        left = [f for t, f in entries if f.suffix and t < time.time() - OLD_S]
        for folder in [*left, *(f for _, f in whole[N_KEPT:])]:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(environ: Mapping[str, str]) -> Path | None:
    """None: nothing is to be kept, or this user has no home."""
    chosen = environ.get(VARIABLE, "")
    if chosen.lower() in _OFF:
        return None
    if chosen.lower() not in _ON:
        return Path(os.path.realpath(chosen))
    home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.path.realpath(home), "duo", "builds") if os.path.isabs(home) else None


def distrust(path: Path) -> str:
    """Why somebody else could have written what is there, or could put something in its place; or nothing. The path has
    no links."""
    for part in (path, *path.parents):
        try:
            found = part.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as e:
            return f"no build is kept or used again: {part} cannot be read: {e.strerror or e}"
        if stat.S_ISLNK(found.st_mode):
            return f"no build is kept or used again: {part} is a link"
        if hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
            return f"no build is kept or used again: {part} belongs to another user; choose a folder with {VARIABLE}"
        # In a folder like /tmp nobody can replace what is another's.
        sticky = part != path and found.st_mode & stat.S_ISVTX
        if hasattr(os, "geteuid") and found.st_mode & 0o022 and not sticky:
            return f"no build is kept or used again: others can write to {part}; chmod go-w, or set {VARIABLE}"
    return ""


def _make(folder: Path) -> None:
    """With the folders above it, to which nobody else can write, whatever the user's umask is."""
    for part in (*reversed(folder.parents), folder):
        if not part.is_dir():
            with suppress(FileExistsError):
                part.mkdir(mode=0o700)


def sum_of(file: Path) -> str:
    total = hashlib.sha256()
    with file.open("rb") as data:
        while piece := data.read(1 << 20):
            total.update(piece)
    return total.hexdigest()
