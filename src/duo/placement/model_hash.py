"""What tells a model from others, wherever its files lie: a hash of what is in them."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from duo import _core
from duo.models.packed_form import is_packed
from duo.models.paths import parts
from duo.support.cache_folder import cache_folder
from duo.support.json_cache import recall, remember

N_HEADER = 1 << 24  # bytes at the front of a file: more than most headers
N_SAMPLES, N_SAMPLE = 64, 1 << 16  # pieces of the weights, and the bytes of each
N_REMEMBERED = 256  # files
TOO_NEW_S = 2.0  # a clock that counts in large ticks gives two versions of a file the same time


def file_hash(path: str | os.PathLike[str]) -> str:
    """Hash of a file's size, its beginning and samples of the rest, in which two models differ. Raises OSError."""
    n = os.path.getsize(path)
    digest = hashlib.sha256(str(n).encode())
    with Path(path).open("rb") as file:
        digest.update(file.read(N_HEADER))
        for i in range(N_SAMPLES if n > N_HEADER else 0):
            file.seek(N_HEADER + (n - N_HEADER) * i // N_SAMPLES)
            digest.update(file.read(N_SAMPLE))
    return digest.hexdigest()[:32]


def file_state(path: str | os.PathLike[str]) -> list[int]:
    """Numbers that change with each writing to the file, whatever is written. Raises OSError."""
    stat = os.stat(path)
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def model_hash(model: str) -> str:
    """Of the files of a model. A packed file that takes their place has the same one. A hash is remembered until
    somebody writes to the file. Raises OSError, and DuoError: the packed file cannot be used."""
    if is_packed(model):
        return _core.packed_facts(os.fsencode(model))[0]
    return " ".join(_remembered_hash(part) for part in parts(model) or [model])


def known_hash(path: str | os.PathLike[str]) -> str | None:
    """file_hash() if it is remembered of the file as it is now. Raises OSError."""
    entry = recall(_known()).get(os.path.realpath(path))
    if isinstance(entry, dict) and entry.get("state") == file_state(path) and isinstance(entry.get("hash"), str):
        return str(entry["hash"])
    return None


def _known() -> Path:
    return cache_folder() / "models.json"


def _remembered_hash(path: str) -> str:
    if (hash_before := known_hash(path)) is not None:
        return hash_before
    state = file_state(path)
    found = file_hash(path)
    if time.time_ns() - max(state[2:]) > TOO_NEW_S * 1e9 and file_state(path) == state:
        remember(_known(), os.path.realpath(path), {"state": state, "hash": found}, N_REMEMBERED)
    return found
