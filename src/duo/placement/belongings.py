"""What a saved cache belongs to: the model's file, the settings that change its numbers, and the build."""

from __future__ import annotations

import os
from collections.abc import Iterable

from duo import _core
from duo.errors import BadValueError, DuoError
from duo.placement.model_hash import file_hash, model_hash
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


class Belongings:
    """What the caches of one Duo belong to. The files are read once, on first use."""

    def __init__(self, placed: _core.EngineOptions) -> None:
        self._placed = placed
        self._by_role: dict[str, dict[str, str]] = {}

    def of(self, engine: _core.Engine) -> dict[str, dict[str, str]]:
        """Belongings by role: target, draft. Raises BadValueError (the target is elsewhere) and DuoError."""
        if engine.target is None:
            raise BadValueError("the target is in another process, and so is its cache; save it there")
        if not self._by_role:
            try:
                by_role = {"target": belongings(self._placed.target, engine.target)}
                if engine.draft is not None:
                    by_role["draft"] = belongings(self._placed.draft, engine.draft)
            except OSError as e:
                raise DuoError(f"a file of the model can no longer be read ({one_line(e)}); restore it") from None
            self._by_role = by_role
        return self._by_role


def difference(saved: dict[str, str], own: dict[str, str]) -> str:
    """The first thing in which they differ; empty if there is none."""
    return next((name for name in own if saved.get(name) != own[name]), "")
