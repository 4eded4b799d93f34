"""The teacher's data on disk: groups of texts, each written whole or not at all, so that a stopped run can go on."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.support.atomic import write_whole
from duo.support.wording import gigabytes

Kind = Literal["learn", "check"]
Array = npt.NDArray[Any]
ARRAYS = ("tokens", "starts", "n_given", "features", "top_ids", "top_log_p")


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

    def has_texts(self, kind: Kind, group: int) -> bool:
        return self._texts(kind, group).exists()

    def put_texts(self, kind: Kind, group: int, texts: list[tuple[list[int], int]]) -> None:
        """texts: the tokens of each, and how many of them were given."""
        tokens = np.concatenate([np.array(t, np.int32) for t, _ in texts])
        starts = np.cumsum([0, *(len(t) for t, _ in texts)]).astype(np.int64)
        part = self._texts(kind, group).with_suffix(".part.npz")
        np.savez(part, tokens=tokens, starts=starts, n_given=np.array([n for _, n in texts], np.int32))
        os.replace(part, self._texts(kind, group))

    def texts(self, kind: Kind, group: int) -> LessonTexts:
        """Raises DuoError: the file is damaged."""
        path = self._texts(kind, group)
        try:
            with np.load(path) as file:
                return LessonTexts(file["tokens"], file["starts"], file["n_given"])
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as e:
            raise DuoError(f"{path} is damaged ({e}); delete it and run the command again") from None

    # ---- lessons

    def _lessons(self, kind: Kind, group: int) -> Path:
        return self.path / "lessons" / f"{kind}-{group:05}"

    def has_lessons(self, kind: Kind, group: int) -> bool:
        return self._lessons(kind, group).exists()

    def put_lessons(self, kind: Kind, group: int, arrays: dict[str, Array]) -> None:
        """arrays: those of ARRAYS; `features` may be missing."""
        into = self._lessons(kind, group)
        with tempfile.TemporaryDirectory(dir=into.parent, prefix=".part-") as part:
            fresh = Path(part) / into.name
            fresh.mkdir()
            for name, array in arrays.items():
                np.save(fresh / f"{name}.npy", array)
            os.replace(fresh, into)

    def lessons(self, kind: Kind, group: int) -> dict[str, Array]:
        """Mapped into memory, not read. Raises DuoError: a file is damaged."""
        folder = self._lessons(kind, group)
        try:
            names = [name for name in ARRAYS if name != "features" or (folder / "features.npy").exists()]
            return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
        except (OSError, ValueError) as e:
            raise DuoError(f"{folder} is damaged ({e}); delete it and run the command again") from None

    def groups(self, kind: Kind) -> Iterator[int]:
        """Numbers of the groups with lessons."""
        files = (self.path / "lessons").glob(f"{kind}-*")
        yield from sorted(int(f.name.rpartition("-")[2]) for f in files)

    def check_room(self, n_bytes: int) -> None:
        """Raises DoesNotFitError."""
        free = shutil.disk_usage(self.path).free
        if free < n_bytes:
            raise DoesNotFitError(
                f"{self.path}: the teacher's data needs {gigabytes(n_bytes)} and {gigabytes(free)} are free; "
                "give fewer --tokens, or another folder with --work"
            )
