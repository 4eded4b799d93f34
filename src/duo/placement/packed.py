"""Files of packed weights: where they are, and whether one can be used for a model. `duo pack` writes them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from duo import _core
from duo.errors import BadValueError, UnknownModelError
from duo.models.paths import parts
from duo.options.model import ModelOptions
from duo.placement.belongings import file_hash
from duo.placement.packing import NONE, Packing
from duo.support.cache_folder import cache_folder
from duo.support.json_cache import recall, remember
from duo.support.wording import one_line

SUFFIX = ".packed"
N_CHECKED = 256  # files whose check is remembered

Choice = tuple[bytes, str, bool]  # path, source, whether to check it: _core.ModelOptions.packed
NOTHING: Choice = (b"", "", False)


def _checked_file() -> Path:
    return cache_folder() / "packed.json"


def default_path(model: str, packing: Packing = NONE) -> Path:
    """The packed file beside the model."""
    return Path(f"{model}{'.' + packing[0] if packing[0] else ''}{SUFFIX}")


def cached_path(model: str, packing: Packing = NONE) -> Path:
    """The packed file of a model whose folder cannot be written."""
    folder = hashlib.sha256(os.fsencode(os.path.abspath(model))).hexdigest()[:16]
    return cache_folder() / "packed" / folder / default_path(Path(model).name, packing).name


def writable_path(model: str, packing: Packing = NONE) -> Path:
    beside = default_path(model, packing)
    return beside if os.access(beside.parent, os.W_OK) else cached_path(model, packing)


def source_of(model: str) -> str:
    """A hash that identifies the model. Raises OSError."""
    return " ".join(file_hash(part) for part in parts(model))


def _state(path: Path) -> list[int]:
    """Numbers that change with each writing to the file, whatever is written."""
    stat = path.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def find(o: ModelOptions, packing: Packing = NONE) -> Path | None:
    """The file for a model, whether it fits or not. Raises UnknownModelError: the user named one that is not there."""
    option = o.packed
    if option == "off" or o.cpu_kernels == "stock" or not o.repack or not os.path.isfile(o.path):
        return None
    if option == "auto":
        files = [p for p in (default_path(o.path, packing), cached_path(o.path, packing)) if p.is_file()]
        return next((p for p in files if not _is_older(p, o.path)), files[0] if files else None)
    if not Path(option).is_file():
        raise UnknownModelError(f"there is no file {option!r} ({o.flag('packed')}); check the path, or run duo pack")
    return Path(option)


def _is_older(file: Path, model: str) -> bool:
    return any(os.stat(part).st_mtime_ns > file.stat().st_mtime_ns for part in parts(model))


def mapped_bytes(o: ModelOptions) -> int:
    """Bytes of the target's weights that will be mapped, as far as can be told before loading."""
    path, source, _ = choose(o, NONE)
    mapped = source and o.load_mode == "auto" and not o.check_tensors
    return os.path.getsize(os.fsdecode(path)) if mapped else 0


def choose(o: ModelOptions, packing: Packing) -> Choice:
    """The packed weights for a model. Raises as find()."""
    file = find(o, packing)
    if file is None:
        return NOTHING
    try:
        state = _state(file)
        source = "" if _is_older(file, o.path) else source_of(o.path)  # no file has an empty source
    except OSError:
        return NOTHING  # loading will report it
    return os.fsencode(file), source, recall(_checked_file()).get(str(file.resolve())) != state


def note_checked(m: _core.ModelOptions, used: str) -> None:
    """Remembers that the packed weights were read and found whole when the model was loaded. used: the file that it
    has its weights from; empty: none."""
    if used and m.packed[2]:
        _remember(Path(used))


def _remember(path: Path) -> None:
    remember(_checked_file(), str(path.resolve()), _state(path), at_most=N_CHECKED)


def _is_packed(path: Path) -> bool:
    """Whether duo pack has written it, by its first key (csrc/llama/packed_header.cpp)."""
    try:
        with path.open("rb") as file:
            return b"duo.packed." in file.read(64)
    except OSError:
        return False


def pack(
    model: str, out: Path, packing: Packing, n_threads: int, progress: Callable[[str, float], None] | None = None
) -> int:
    """Writes the packed weights of a model. Returns the number of bytes. Raises DuoError."""
    if not os.path.isfile(model):
        raise UnknownModelError(f"there is no file {model}; check the path")
    own_paths = {default_path(model, packing), cached_path(model, packing)}
    if out.is_dir() or (out.exists() and out not in own_paths and not _is_packed(out)):
        raise BadValueError(f"{out} exists and is no packed file; choose another name (-o), or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        source = source_of(model)
    except OSError as e:
        raise BadValueError(f"the weights cannot be packed into {out}: {one_line(e)}; check both paths") from None
    n = _core.pack_model(os.fsencode(model), os.fsencode(out), source, packing, n_threads, progress)
    _remember(out)
    return n
