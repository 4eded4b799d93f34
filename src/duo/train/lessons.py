"""The teacher's data on disk: groups of texts, each written whole or not at all, so that a stopped run can go on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.support.atomic import replacing, write_whole
from duo.support.folder_users import FolderUser
from duo.support.full_disk import is_full
from duo.support.wording import gigabytes

Kind = Literal["learn", "check"]
Array = npt.NDArray[Any]
ARRAYS = ("tokens", "starts", "n_given", "features", "top_ids", "top_log_p")
# What a process leaves that is killed while it writes. Other files like .duo-* may be other commands'.
LEFT = (".duo-*/checkpoint.pt", ".duo-*/made_of.json", "texts/.duo-*/*-*.npz", "lessons/.part-*/*-*")


@dataclass(frozen=True)
class LessonTexts:
    """Texts of a group. tokens: of all, one after the other; starts [n + 1]: where each begins; n_given [n]: its tokens
    that the target did not write."""

    tokens: Array
    starts: Array
    n_given: Array

    def of(self, i: int) -> Array:
        text: Array = self.tokens[self.starts[i] : self.starts[i + 1]]
        return text

    def __len__(self) -> int:
        return len(self.n_given)


class Folder:
    """One folder for one target, recipe and data: texts/, lessons/, and a checkpoint."""

    def __init__(self, path: Path, made_of: dict[str, Any]) -> None:
        """Raises BadValueError: the folder holds something else. DuoError: it cannot be made."""
        self.path = path
        about = path / "made_of.json"
        try:
            (path / "texts").mkdir(parents=True, exist_ok=True)
            (path / "lessons").mkdir(exist_ok=True)
            self._user = FolderUser(path, self._remove_what_is_left)
            if about.exists() and self._holds_anything():
                self._compare(json.loads(about.read_text("utf-8")), made_of)
            else:
                write_whole(about, json.dumps(made_of, indent=1).encode())
        except OSError as e:
            raise DuoError(f"{path}: cannot be used ({e.strerror}); choose another folder with --work") from None
        except ValueError as e:
            if isinstance(e, BadValueError):
                raise
            raise BadValueError(
                f"{about} is damaged ({e}); delete the folder, or choose another one with --work"
            ) from None

    def _remove_what_is_left(self) -> None:
        for pattern in LEFT:
            for found in self.path.glob(pattern):
                shutil.rmtree(found.parent, ignore_errors=True)

    def _holds_anything(self) -> bool:
        """A run that found fault with its data leaves nothing that another one could mistake for its own."""
        return (self.path / "checkpoint.pt").exists() or any(
            any((self.path / part).glob("*-*")) for part in ("texts", "lessons")
        )

    def _compare(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        for name, value in new.items():
            if old.get(name) != value:
                raise BadValueError(
                    f"{self.path} was made with another {name.replace('_', ' ')} ({old.get(name)}, not {value}); "
                    "give the same one, delete the folder, or choose another one with --work"
                )

    # ---- texts

    def _texts(self, kind: Kind, group: int) -> Path:
        return self.path / "texts" / f"{kind}-{group:05}.npz"

    def n_texts(self, kind: Kind, group: int) -> int:
        """How many the group has. Raises DuoError: the file cannot be read."""
        path = self._texts(kind, group)
        if not path.exists():
            return 0
        with _read(path), np.load(path) as file:
            return len(file["n_given"])

    def put_texts(self, kind: Kind, group: int, texts: list[tuple[list[int], int]]) -> None:
        """texts: the tokens of each, and how many of them were given. Raises DuoError: they cannot be written."""
        tokens = np.concatenate([np.array(t, np.int32) for t, _ in texts])
        starts = np.cumsum([0, *(len(t) for t, _ in texts)]).astype(np.int64)
        with self._written(), replacing(self._texts(kind, group)) as part:
            np.savez(part, tokens=tokens, starts=starts, n_given=np.array([n for _, n in texts], np.int32))

    def texts(self, kind: Kind, group: int) -> LessonTexts:
        """Raises DuoError: the file cannot be read."""
        path = self._texts(kind, group)
        with _read(path), np.load(path) as file:
            return LessonTexts(file["tokens"], file["starts"], file["n_given"])

    # ---- lessons

    def _lessons(self, kind: Kind, group: int) -> Path:
        return self.path / "lessons" / f"{kind}-{group:05}"

    def n_lessons(self, kind: Kind, group: int) -> int:
        """How many texts the group has lessons of. Raises DuoError: they cannot be read."""
        folder = self._lessons(kind, group)
        if not folder.exists():
            return 0
        with _read(folder):
            return len(np.load(folder / "n_given.npy"))

    def put_lessons(self, kind: Kind, group: int, arrays: dict[str, Array]) -> None:
        """arrays: those of ARRAYS; `features` may be missing. Raises DuoError: they cannot be written."""
        into = self._lessons(kind, group)
        with self._written(), tempfile.TemporaryDirectory(dir=into.parent, prefix=".part-") as part:
            fresh = Path(part) / into.name
            fresh.mkdir()
            for name, array in arrays.items():
                np.save(fresh / f"{name}.npy", array)
            if into.exists():  # of fewer texts
                os.replace(into, Path(part) / "old")
            os.replace(fresh, into)

    def lessons(self, kind: Kind, group: int) -> dict[str, Array]:
        """Mapped into memory, not read. Each array holds a file descriptor as long as it lives. Raises DuoError: a
        file cannot be read."""
        folder = self._lessons(kind, group)
        with _read(folder):
            names = [name for name in ARRAYS if name != "features" or (folder / "features.npy").exists()]
            return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}

    def groups(self, kind: Kind) -> Iterator[int]:
        """Numbers of the groups with lessons."""
        files = (self.path / "lessons").glob(f"{kind}-*")
        yield from sorted(int(f.name.rpartition("-")[2]) for f in files)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raises DuoError in place of OSError."""
        try:
            yield
        except OSError as e:
            if is_full(e):
                raise DoesNotFitError(
                    f"{self.path}: the disk is full, so the teacher's data could not be written; free some space and "
                    "run the same command again"
                ) from None
            raise DuoError(
                f"{self.path}: the teacher's data could not be written ({e.strerror}); mend that and run the same "
                "command again"
            ) from None

    def check_room(self, n_bytes: int) -> None:
        """Raises DoesNotFitError."""
        free = shutil.disk_usage(self.path).free
        if free < n_bytes:
            raise DoesNotFitError(
                f"{self.path}: the teacher's data needs {gigabytes(n_bytes)} and {gigabytes(free)} are free; "
                "give fewer --tokens, or another folder with --work"
            )


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Raises DuoError in place of what reading raises. Only a file whose content is wrong is to be deleted."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as e:
        # Zip files with wrong offsets: EINVAL, or an error without a number.
        if isinstance(e, OSError) and not isinstance(e, FileNotFoundError) and e.errno not in (None, errno.EINVAL):
            what = "raise this limit (ulimit -n)" if e.errno == errno.EMFILE else "mend that"
            raise DuoError(f"{path} cannot be read ({e.strerror}); {what} and run the same command again") from None
        raise DuoError(f"{path} is damaged ({e}); delete it and run the command again") from None
