"""Files of packed weights: where they are, and whether one can be used for a model. `duo pack` writes them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from duo import _core
from duo.errors import BadValueError, UnknownModelError
from duo.models.packed_form import is_packed
from duo.models.paths import parts
from duo.options.model import ModelOptions
from duo.placement.belongings import file_hash
from duo.placement.packing import NONE, Packing
from duo.support.cache_folder import cache_folder
from duo.support.json_cache import recall, remember
from duo.support.wording import one_line

SUFFIX = ".packed"
WHOLE_SUFFIX = ".packed.gguf"  # of a packed file that takes the place of the model's
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


def whole_path(model: str) -> Path:
    """The packed file that takes the model's place."""
    return Path(model.removesuffix(".gguf") + WHOLE_SUFFIX)


def unpacked_path(packed: str) -> Path:
    """The model's file that it is made from again."""
    return Path(packed.removesuffix(WHOLE_SUFFIX) + ".gguf")


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
    if option == "auto" and is_packed(o.path):
        return Path(o.path)
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
    file = os.fsdecode(path)
    mapped = (source or file == o.path) and o.load_mode == "auto" and not o.check_tensors
    return os.path.getsize(file) if mapped else 0


def choose(o: ModelOptions, packing: Packing) -> Choice:
    """The packed weights for a model. Raises as find()."""
    file = find(o, packing)
    try:
        if is_packed(o.path) and file in (None, Path(o.path)):
            return b"" if file is None else os.fsencode(file), "", _must_be_checked(Path(o.path))
        if file is None:
            return NOTHING
        source = "" if _is_older(file, o.path) else source_of(o.path)  # no file has an empty source
        return os.fsencode(file), source, _must_be_checked(file)
    except OSError:
        return NOTHING  # loading will report it


def _must_be_checked(file: Path) -> bool:
    return recall(_checked_file()).get(str(file.resolve())) != _state(file)


def note_checked(m: _core.ModelOptions, used: str) -> None:
    """Remembers that the packed weights were read and found whole when the model was loaded. used: the file that it
    has its weights from; empty: none."""
    model = os.fsdecode(m.path)
    file = model if is_packed(model) else used
    if file and m.packed[2] and not m.vocab_only:
        _remember(Path(file))


def _remember(path: Path) -> None:
    remember(_checked_file(), str(path.resolve()), _state(path), at_most=N_CHECKED)


Progress = Callable[[str, float], None]


def pack(
    model: str, out: Path, packing: Packing, n_threads: int, progress: Progress | None = None, *, whole: bool = False
) -> int:
    """Writes the packed weights of a model. whole: with all that its file has, so that the packed file can take its
    place. Returns the number of bytes. Raises DuoError."""
    if not os.path.isfile(model):
        raise UnknownModelError(f"there is no file {model}; check the path")
    own_paths = {default_path(model, packing), cached_path(model, packing)}
    if out.is_dir() or (out.exists() and out not in own_paths and not is_packed(out)):
        raise BadValueError(f"{out} exists and is no packed file; choose another name (-o), or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        source = source_of(model)
    except OSError as e:
        raise BadValueError(f"the weights cannot be packed into {out}: {one_line(e)}; check both paths") from None
    n = _core.pack_model(os.fsencode(model), os.fsencode(out), source, packing, n_threads, progress, whole)
    _remember(out)
    return n


def replace(model: str, out: Path, n_threads: int, progress: Progress | None = None) -> int:
    """Packs a model, and removes its file when the packed one is on the disk and was compared with it. Returns the
    number of bytes. Raises DuoError."""
    if os.path.islink(model):
        raise BadValueError(f"{model} is a link; give the file that it leads to, which will be removed")
    if out.exists() and os.path.isfile(model) and os.path.samefile(out, model):
        raise BadValueError(f"{out} is the model itself; choose another name (-o)")
    n = pack(model, out, NONE, n_threads, progress, whole=True)
    beside = default_path(model)
    try:
        _sync(out.parent)
        os.unlink(model)
        if beside.is_file() and not beside.samefile(out):  # without the model's file nothing uses it
            beside.unlink()
    except OSError as e:
        raise BadValueError(f"{out} was written, but {model} cannot be removed: {one_line(e)}; remove it") from None
    return n


def _sync(folder: Path) -> None:
    """The names of a folder's files are on the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unpack(packed: str, out: Path, n_threads: int, progress: Progress | None = None) -> None:
    """Writes the model's file that a packed file has taken the place of. Raises DuoError."""
    if not os.path.isfile(packed):
        raise UnknownModelError(f"there is no file {packed}; check the path")
    if out.exists():
        raise BadValueError(f"{out} exists; choose another name (-o), or remove it")
    _core.unpack_model(os.fsencode(packed), os.fsencode(out), n_threads, progress)
