"""What a saved cache belongs to: the model's file, the settings that change its numbers, and the build."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from duo import _core
from duo.errors import BadValueError, DuoError
from duo.models.paths import parts
from duo.placement.model_hash import file_hash, known_hash, model_hash
from duo.support.wording import one_line


def _files(paths: Iterable[str | bytes]) -> str:
    return ", ".join(file_hash(os.fsdecode(path)) for path in paths)


def belongings(m: _core.ModelOptions, model: _core.Model) -> dict[str, str]:
    """What a cache of the model belongs to, by names for messages. The places of layers are left out: they only change
    rounding. Raises OSError and DuoError."""
    path = os.fsdecode(m.path)
    rope = (m.rope_scaling, m.rope_freq_base, m.rope_freq_scale, m.yarn_orig_ctx, m.yarn_ext_factor)
    packed = [f"packed as {model.packed_as}"] if model.packed_as else []
    yarn = (m.yarn_attn_factor, m.yarn_beta_slow, m.yarn_beta_fast)
    vectors = ", ".join(f"{file_hash(os.fsdecode(file))} x {scale}" for file, scale in m.control_vectors)
    return {
        "build of llama.cpp": _core.ggml_commit(),
        "model": model_hash(path),
        "context size": str(model.n_ctx),
        "cache type": f"{m.type_k} {m.type_v}",
        "setting of flash attention": m.flash_attn,
        "choice of CPU kernels": " ".join([_core.KERNELS_VERSION, *sorted(m.cpu_types), "strict" * m.strict, *packed]),
        "RoPE setting": " ".join(map(str, (*rope, *yarn))),
        "choice of header values": str(sorted(m.kv_overrides.items())) if m.kv_overrides else "",
        "choice of LoRA adapters": _files(path for path, _scale in m.loras),  # their scales may change
        "choice of control vectors": f"{vectors} {m.control_first} {m.control_last}" * bool(m.control_vectors),
    }


def _files_of(placed: _core.EngineOptions) -> list[str]:
    files: list[str | bytes] = []
    for m in (placed.target, placed.draft):
        named = [path for path, _scale in (*m.loras, *m.control_vectors)]
        files += [*parts(os.fsdecode(m.path)), *named] if m.path else []
    return [os.fsdecode(file) for file in files]


class _FileState(NamedTuple):
    """A file when it was loaded."""

    numbers: tuple[int, ...]  # they differ if another file takes its name
    known_hash: str | None

    @classmethod
    def of(cls, file: str) -> _FileState:
        """Raises OSError."""
        return cls(_numbers(file), known_hash(file))

    def is_of(self, file: str) -> bool:
        """Whether the file is the same. Some file systems number files anew, and a file may be touched: then its
        contents are compared, if they are known. Raises OSError."""
        return self.numbers == _numbers(file) or (self.known_hash is not None and self.known_hash == file_hash(file))


def _numbers(file: str) -> tuple[int, ...]:
    # Not the time of the last change of its names and rights: those do not count.
    s = os.stat(file)
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns


class Belongings:
    """What the caches of one Duo belong to. Make it before the files are loaded. They are read once more, on first
    use."""

    def __init__(self, placed: _core.EngineOptions) -> None:
        self._placed = placed
        self._by_role: dict[str, dict[str, str]] = {}
        try:
            self._loaded = {file: _FileState.of(file) for file in _files_of(placed)}
        except OSError:
            self._loaded = {}  # loading will report it

    def of(self, engine: _core.Engine) -> dict[str, dict[str, str]]:
        """Belongings by role: target, draft. Raises BadValueError (the target is elsewhere) and DuoError (a file was
        replaced, or is gone)."""
        if engine.target is None:
            raise BadValueError("the target is in another process, and so is its cache; save it there")
        if not self._by_role:
            try:
                by_role = {"target": belongings(self._placed.target, engine.target)}
                if engine.draft is not None:
                    by_role["draft"] = belongings(self._placed.draft, engine.draft)
                self._refuse_replaced()
            except OSError as e:
                raise DuoError(f"a file of the model can no longer be read ({one_line(e)}); restore it") from None
            self._by_role = by_role
        return self._by_role

    def _refuse_replaced(self) -> None:
        """Raises DuoError: the names are now those of other files than the loaded ones. Raises OSError."""
        replaced = next((file for file, state in self._loaded.items() if not state.is_of(file)), None)
        if replaced is not None:
            raise DuoError(
                f"{replaced} has changed since it was loaded, so no cache can be saved or restored; load it again"
            )


def difference(saved: dict[str, str], own: dict[str, str]) -> str:
    """The first thing in which they differ; empty if there is none."""
    return next((name for name in own if saved.get(name) != own[name]), "")
