"""Files of packed weights: where they are, and whether one can be used for a model."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from duo import _core
from duo.errors import BadValueError, UnknownModelError
from duo.models.packed_form import is_packed
from duo.models.paths import parts
from duo.options.model import ModelOptions
from duo.placement.model_hash import file_hash, file_state, model_hash
from duo.placement.packing import NONE, Packing
from duo.support.cache_folder import cache_folder
from duo.support.json_cache import recall, remember

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


def _lasting(model: str) -> str:
    """The name that a model keeps: of a link of the hub's cache, which has one for each commit, that of its data."""
    real = os.path.realpath(model)
    return real if os.path.islink(model) and os.path.basename(os.path.dirname(real)) == "blobs" else model


def writable_path(model: str, packing: Packing = NONE) -> Path:
    model = _lasting(model)
    beside = default_path(model, packing)
    return beside if os.access(beside.parent, os.W_OK) else cached_path(model, packing)


def source_of(model: str) -> str:
    """model_hash() of a model that is not packed, of what is in its files now. Raises OSError."""
    return " ".join(file_hash(part) for part in parts(model))


def find(o: ModelOptions, packing: Packing = NONE) -> str | None:
    """The file for a model, whether it fits or not. Raises UnknownModelError: the user named one that is not there, and
    BadValueError: the model is packed itself."""
    option = o.packed
    if option == "off" or o.cpu_kernels == "stock" or not o.repack or not os.path.isfile(o.path):
        return None
    if option == "auto" and is_packed(o.path):
        return o.path
    if option == "auto":
        # Unlike pathlib, False where a folder may not be entered, or the name is too long.
        places = (place(name, packing) for name in (_lasting(o.path), o.path) for place in (default_path, cached_path))
        files = [p for p in places if os.path.isfile(p)]
        newest = next((p for p in files if not _is_older(p, o.path)), files[0] if files else None)
        return None if newest is None else str(newest)
    if not os.path.isfile(option):
        raise UnknownModelError(f"there is no file {option!r} ({o.flag('packed')}); check the path, or run duo pack")
    if is_packed(o.path):
        if not os.path.samefile(option, o.path):
            raise BadValueError(
                f"{o.path} is packed itself and takes no other packed file; leave out {o.flag('packed')}"
            )
        return o.path
    return option


def _is_older(file: str | Path, model: str) -> bool:
    return any(os.stat(part).st_mtime_ns > os.stat(file).st_mtime_ns for part in parts(model))


def mapped_bytes(o: ModelOptions) -> int:
    """Bytes of the target's weights that will be mapped, as far as can be told before loading."""
    path, source, _ = choose(o, NONE)
    if not path or o.check_tensors:
        return 0
    if source:
        return os.path.getsize(path) if o.load_mode == "auto" else 0
    if not is_packed(o.path) or o.load_mode not in ("auto", "mmap", "mlock") or o.context["lora"]:
        return 0
    return _core.packed_facts(path)[1]  # the rest is read


def choose(o: ModelOptions, packing: Packing) -> Choice:
    """The packed weights for a model. Raises as find()."""
    file = find(o, packing)
    try:
        if is_packed(o.path):
            return b"" if file is None else os.fsencode(file), "", _must_be_checked(Path(o.path))
        if file is None:
            return NOTHING
        source = "" if _is_older(file, o.path) else model_hash(o.path)  # no file has an empty source
        return os.fsencode(file), source, _must_be_checked(Path(file))
    except OSError:
        return NOTHING  # loading will report it


def _must_be_checked(file: Path) -> bool:
    return recall(_checked_file()).get(str(file.resolve())) != file_state(file)


def note_checked(m: _core.ModelOptions, used: str) -> None:
    """Remembers that the packed weights were read and found whole when the model was loaded. used: the file that it
    has its weights from; empty: none."""
    model = os.fsdecode(m.path)
    file = model if is_packed(model) else used
    if file and m.packed[2] and not m.vocab_only:
        remember_checked(Path(file))


def remember_checked(path: Path) -> None:
    """That a file was just written or read to its end, and nothing was wrong."""
    remember(_checked_file(), str(path.resolve()), file_state(path), at_most=N_CHECKED)
