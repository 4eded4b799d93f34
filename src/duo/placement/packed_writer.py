"""Writes files of packed weights, and the model's file again (`duo pack`).

A file that may be all that is left of a model is never replaced or removed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from duo import __version__, _core
from duo.errors import BadValueError, DuoError, UnknownModelError
from duo.models.packed_form import is_packed
from duo.placement.packed import default_path, remember_checked, source_of
from duo.placement.packing import NONE, Packing
from duo.support.cache_folder import cache_folder
from duo.support.wording import one_line

Progress = Callable[[str, float], None]


def pack(
    model: str, out: Path, packing: Packing, n_threads: int, progress: Progress | None = None, *, whole: bool = False
) -> int:
    """Writes the packed weights of a model. whole: with all that its file has, so that the packed file can take its
    place; `out` is a new file. Returns the number of bytes. Raises DuoError."""
    if not os.path.isfile(model):
        raise UnknownModelError(f"there is no file {model}; check the path")
    _refuse_existing(out, whole)
    try:
        created = _make_folder(out.parent)
        source = source_of(model)
        n = _core.pack_model(
            os.fsencode(model), os.fsencode(out), (source, __version__), packing, n_threads, progress, whole
        )
        for folder in created:
            _sync(folder)
    except OSError as e:
        raise BadValueError(f"the weights cannot be packed into {out}: {one_line(e)}; check both paths") from None
    remember_checked(out)
    return n


def _refuse_existing(out: Path, whole: bool) -> None:
    """Raises BadValueError: there is such a file, and it must stay."""
    advice = "choose another name (-o), or remove it"
    if not os.path.lexists(out) or (out.is_file() and not whole and out.stat().st_size == 0):
        return
    if out.is_dir() or whole or not is_packed(out):
        raise BadValueError(f"{out} exists{'' if whole else ' and is no packed file'}; {advice}")
    if _core.may_be_whole(os.fsencode(out)):
        raise BadValueError(f"{out} exists and may be all that is left of a model; {advice}")


def _make_folder(folder: Path) -> list[Path]:
    """Creates it. Returns the folders that have new names. Raises OSError."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return [f.parent for f in missing]


def replace(model: str, out: Path, n_threads: int, progress: Progress | None = None) -> tuple[int, str]:
    """Packs a model, and removes its file when the packed one is on the disk and was compared with it. Returns the
    number of bytes, and why a file was kept (or ""). Raises DuoError: the model's file was kept."""
    _refuse_shared(model)
    if os.path.exists(out) and os.path.isfile(model) and os.path.samefile(out, model):
        raise BadValueError(f"{out} is the model itself; choose another name (-o)")
    try:
        before = _state(model) if os.path.isfile(model) else None
        n = pack(model, out, NONE, n_threads, progress, whole=True)
        source = source_of(model)
    except OSError as e:
        raise BadValueError(f"{model} cannot be read: {one_line(e)}; it was kept") from None
    try:
        _sync(out.parent)
    except OSError as e:
        raise BadValueError(
            f"{out} was written, but whether its name is on the disk cannot be told ({one_line(e)}), so {model} was "
            "kept; remove it when you are sure"
        ) from None
    why = _remove(model, before)
    return n, why or _remove_beside(default_path(model), source)


def _refuse_shared(model: str) -> None:
    """Raises BadValueError: others find the file by its name."""
    from duo.models.hub.settings import HubSettings

    if os.path.islink(model):
        raise BadValueError(f"{model} is a link; give the file that it leads to, which will be removed")
    real = Path(os.path.realpath(model))
    for cache in (HubSettings(token=None).cache, cache_folder()):
        if real.is_relative_to(os.path.realpath(cache)):
            raise BadValueError(
                f"{model} is in the cache {cache}, which would miss it; copy it to a folder of your own"
            )


def _state(path: str) -> tuple[int, ...]:
    """Changes when the file does, or when another one takes its name. Raises OSError."""
    s = os.lstat(path)
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_nlink, s.st_ctime_ns


def _remove(model: str, before: tuple[int, ...] | None) -> str:
    """Removes the model's file if nobody has written to it. It gets another name first, so that a file that takes its
    name meanwhile stays. Returns why it was kept, or ""."""
    changed = f"{model} was kept, because it has changed while it was packed"
    aside = f"{model}.{secrets.token_hex(4)}.packed-already"
    try:
        if _state(model) != before:
            return changed
        os.rename(model, aside)
    except OSError as e:
        return f"{model} cannot be removed: {one_line(e)}"
    try:
        if before is None or _state(aside)[:-1] != before[:-1]:  # the new name counts as a change of its own
            return f"{changed}; it is {aside} now"
        os.unlink(aside)
    except OSError as e:
        return f"{model} cannot be removed ({one_line(e)}); it is {aside} now"
    return ""


def _remove_beside(beside: Path, source: str) -> str:
    """Removes the packed weights beside the model's file, which nothing uses without it. Returns why not, or ""."""
    try:
        if (
            not beside.is_file()
            or beside.is_symlink()
            or not is_packed(beside)
            or _core.may_be_whole(os.fsencode(beside))
        ):
            return ""
        if _core.packed_facts(os.fsencode(beside))[0] == source:
            beside.unlink()
    except OSError as e:
        return f"{beside}, which is of no use any more, cannot be removed: {one_line(e)}"
    except DuoError:
        pass  # it is damaged or of another version: whoever made it may know more
    return ""


def _sync(folder: Path) -> None:
    """The names of a folder's files are on the disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unpack(packed: str, out: Path, n_threads: int, progress: Progress | None = None) -> None:
    """Writes the model's file that a packed file has taken the place of. Raises DuoError."""
    if not os.path.isfile(packed):
        raise UnknownModelError(f"there is no file {packed}; check the path")
    if os.path.lexists(out):
        raise BadValueError(f"{out} exists; choose another name (-o), or remove it")
    _core.unpack_model(os.fsencode(packed), os.fsencode(out), n_threads, progress)
    try:
        _sync(out.parent)
    except OSError as e:
        raise BadValueError(
            f"{out} was written, but whether its name is on the disk cannot be told ({one_line(e)}); keep {packed} for "
            "now"
        ) from None
