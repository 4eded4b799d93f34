"""Profiles: what runs have learned about pairs, so that later runs start warm. DUO_PROFILES=off turns them off."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from duo import _core
from duo.errors import DuoError
from duo.placement import guard, kernels
from duo.placement.model_hash import model_hash
from duo.placement.teams import DEFAULT as NO_TEAM
from duo.support.cache_folder import cache_folder
from duo.support.json_cache import recall, remember

N_PAIRS = 64
N_WORTH_KEEPING = 32  # passes that a run must have measured
# The options of a model that change its speed or its agreement. The context does not.
FIELDS = (
    "devices",
    "n_gpu_layers",
    "tensor_split",
    "split_mode",
    "main_gpu",
    "n_threads",
    "cpus",
    "cpu_types",
    "type_k",
    "type_v",
    "flash_attn",
    "strict",
    "override_tensors",
    "loras",
    "control_vectors",
    "mtp",
)


def cache_file() -> Path:
    return cache_folder() / "pairs.json"


def in_use() -> bool:
    return os.environ.get("DUO_PROFILES") != "off"


def _field(m: _core.ModelOptions, name: str) -> object:
    """Shares by free memory differ a little from run to run, so they are rounded."""
    value = getattr(m, name)
    return [round(16 * x / sum(value)) for x in value] if name == "tensor_split" and any(value) else value


def _model(m: _core.ModelOptions) -> str:
    packing = [f"packing {m.packing}"] if m.packing[0] else []
    packing += [f"draft_vocab {m.draft_vocab}"] if m.draft_vocab else []
    named = [*(f"{name} {_field(m, name)}" for name in FIELDS), *packing, *_of_wide_passes(m)]
    return ", ".join([model_hash(os.fsdecode(m.path)), *named])


def _of_wide_passes(m: _core.ModelOptions) -> list[str]:
    """Only what differs from the default, so that older records stay valid."""
    batch = [f"n_threads_batch {m.n_threads_batch}"] if m.n_threads_batch != m.n_threads else []
    named = (("narrow_team", m.narrow_team), ("wide_team", m.wide_team))
    return batch + [f"{name} {team}" for name, team in named if tuple(team) != NO_TEAM]


def key(placed: _core.EngineOptions) -> str:
    """Identifies the pair by what is in its files, their placement and this machine. Correct only as long as relative
    paths lead to the loaded files. Raises OSError and DuoError if the files are gone."""
    # Without a list of devices a model uses all GPUs that this run sees.
    machine = [kernels.processor(), *(f"{d[0]} {d[1]}" for d in _core.devices() if d[2] in ("gpu", "igpu", "rpc"))]
    software = [
        f"llama.cpp {_core.ggml_commit()}",
        guard.stock_name(),
        f"{kernels.available()} {_core.KERNELS_VERSION}",
    ]
    software.append(f"profile {_core.PROFILE_VERSION}")
    return " | ".join([*machine, *software, _model(placed.target), _model(placed.draft), f"split {placed.split}"])


def load(key: str) -> list[float] | None:
    """The numbers saved under this key; None if there are none or the record is damaged."""
    entry = recall(cache_file()).get(key) if in_use() else None
    try:
        return [float(x) for x in entry["numbers"]] if isinstance(entry, dict) else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def save(key: str, numbers: list[float], note: str) -> bool:
    """note: for people who read the file. Returns False if it cannot be written, or under DUO_PROFILES=off."""
    return in_use() and remember(cache_file(), key, {"note": note, "numbers": numbers}, N_PAIRS)


def restore(engine: _core.Engine, placed: _core.EngineOptions) -> str:
    """Gives a newly loaded pair its saved profile, if there is one. Returns the key for `keep`; empty if there is no
    draft or the files are gone."""
    if engine.draft is None or not in_use() or not guard.is_build_known():
        return ""
    try:
        where = key(placed)
    except (OSError, DuoError):
        return ""
    if (numbers := load(where)) is not None:
        engine.restore_profile(numbers)
    return where


def keep(engine: _core.Engine, key: str) -> None:
    """Saves what this run has learned, if it measured enough passes. Call it between texts only."""
    with suppress(DuoError):  # the engine is closed, or a text is still running
        if key and engine.n_measured >= N_WORTH_KEEPING:
            save(key, engine.profile(), "learned while texts were generated")
