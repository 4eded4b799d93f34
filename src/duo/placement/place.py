"""Chooses CPUs and devices for each model, from the user's options and the machine."""

from __future__ import annotations

import os
from typing import Any, cast

from duo import _core
from duo.errors import UnknownModel
from duo.models.paths import model_bytes
from duo.options.engine import EngineOptions
from duo.options.tables import ENGINE_OPTIONS
from duo.placement import kernels
from duo.placement.cpus import cpu_list, usable_cores
from duo.placement.devices import device_names, devices, tensor_overrides
from duo.placement.fit import Placement
from duo.placement.prior import SMALL, expect
from duo.placement.resolve_auto import resolve_auto, resolve_auto_alone
from duo.support.context import N_CTX_DEFAULT

N_AHEAD = 3.0  # guesses per pass of the target that the draft's cores should suffice for


def _on_gpu(names: list[str], layers: int | str) -> bool:
    if names == ["none"] or layers == 0:
        return False
    return bool(names) or any(d.type == "gpu" for d in devices())


def _model(
    o: EngineOptions, path: str, n_threads: int, *, draft: bool, drafted: bool = False, n_threads_beside: int = 0
) -> _core.ModelOptions:
    """drafted: passes of the target verify guesses. n_threads_beside: while the other model works; 0: n_threads."""
    m = _core.ModelOptions()
    m.path = os.fsencode(path)
    m.n_batch, m.n_ubatch = o["n_batch"], min(o["n_ubatch"], o["n_batch"])
    m.flash_attn, m.load_mode, m.strict = o["flash_attn"], o["load_mode"], o["strict"] and not draft
    m.n_threads = n_threads
    if draft:
        layers, n_ctx, batch = o["n_gpu_layers_draft"], o["n_ctx_draft"], o["n_threads_batch_draft"]
        m.devices = device_names(o["device_draft"])
        m.type_k, m.type_v = o["type_k_draft"], o["type_v_draft"]
        m.cpus = cpu_list(o["cpu_mask_draft"], o["cpu_range_draft"], draft=True)
        m.n_ctx = n_ctx or 0
        m.override_tensors = tensor_overrides(o["override_tensor_draft"], draft=True)
    else:
        layers, n_ctx, batch = o["n_gpu_layers"], o["n_ctx"], o["n_threads_batch"]
        m.devices = device_names(o["device"])
        m.type_k, m.type_v = o["type_k"], o["type_v"]
        m.cpus = cpu_list(o["cpu_mask"], o["cpu_range"], draft=False)
        m.n_ctx, m.n_ctx_most = n_ctx or 0, N_CTX_DEFAULT if n_ctx is None else 0
        m.override_tensors = tensor_overrides(o["override_tensor"], draft=False)
        m.tensor_split, m.split_mode, m.main_gpu = o["tensor_split"] or [], o["split_mode"], o["main_gpu"]
        m.loras = scaled_files(o, "lora", "LoRA adapter")
        m.control_vectors = scaled_files(o, "control_vector", "control vector")
        m.control_first, m.control_last = o["control_vector_layer_range"] or (0, 0)
        m.rope_scaling, m.kv_overrides = o["rope_scaling_type"] or "", o["kv_overrides"] or {}
        m.rope_freq_base, m.rope_freq_scale = o["rope_freq_base"], o["rope_freq_scale"]
        m.yarn_orig_ctx, m.yarn_ext_factor, m.yarn_attn_factor = (
            o["yarn_orig_ctx"], o["yarn_ext_factor"], o["yarn_attn_factor"],
        )  # fmt: skip
        m.yarn_beta_slow, m.yarn_beta_fast = o["yarn_beta_slow"], o["yarn_beta_fast"]
    m.n_threads_batch = batch or n_threads
    m.n_gpu_layers = -1 if layers == "all" else int(layers)
    # No race under --strict: duo's kernels give the same bits at a lower cost than stock ones, and a race would use the
    # stock ones before ggml is set up for it.
    choice = "duo" if o["strict"] and o["cpu_kernels"] == "auto" and kernels.available() else o["cpu_kernels"]
    n_gpu_layers = m.n_gpu_layers if _on_gpu(m.devices, layers) else 0
    teams = sorted({n_threads, n_threads_beside or n_threads})
    # A draft's step over several branches is as wide as a verification.
    m.cpu_types = kernels.chosen_types(choice, path, n_gpu_layers, teams, m.n_threads_batch, drafted=drafted or draft)
    if m.loras:
        m.cpu_types = []  # libllama puts an adapter beside its weights, and duo's memory is for weights alone
    kernels.read_ahead(m.cpu_types, n_threads)
    return m


def scaled_files(o: EngineOptions, option: str, what: str) -> list[tuple[str | bytes, float]]:
    """Files of the target and their scales. Raises UnknownModel: there is no such file."""
    given = cast("dict[str, Any]", o)
    scales = [*((name, 1.0) for name in given[option] or ()), *(given[f"{option}_scaled"] or {}).items()]
    for name, _ in scales:
        if not os.path.isfile(name):
            raise UnknownModel(f"there is no {what} {name!r} ({ENGINE_OPTIONS[option].flags[0]}); check the path")
    return [(os.fsencode(name), scale) for name, scale in scales]


def _draft_on_gpu(o: EngineOptions) -> bool:
    return _on_gpu(device_names(o["device_draft"]), o["n_gpu_layers_draft"])


def _n_threads(o: EngineOptions, path: str, share: int, *, draft: bool) -> int:
    """The number that the user gave, or the number of CPUs that the user named; otherwise `share`, or one thread for a
    tiny model. A draft on a GPU needs one thread, which only launches kernels."""
    twin = "_draft" if draft else ""
    named = cpu_list(o[f"cpu_mask{twin}"], o[f"cpu_range{twin}"], draft=draft)  # type: ignore[literal-required]
    on_gpu = draft and _draft_on_gpu(o)
    n = o[f"n_threads{twin}"] or len(named)  # type: ignore[literal-required]
    return n or (1 if on_gpu else _team(path, share))


def place_alone(o: EngineOptions, path: str, *, draft: bool) -> _core.ModelOptions:
    """Options for the one model of a host, which has all cores. For a draft they are the `_draft` options."""
    o = resolve_auto_alone(o, path, devices(), draft=draft)
    m = _model(o, path, _n_threads(o, path, usable_cores(), draft=draft), draft=draft)
    if draft and o["n_ctx_draft"] is None:
        m.n_ctx_most = N_CTX_DEFAULT
    return m


def _on_cpu(placement: Placement | None, *, draft: bool) -> bool:
    """Whether the CPU computes some of the model's layers."""
    placed = None if placement is None else placement.draft if draft else placement.target
    return placed is None or placed.n_gpu_layers < placed.n_all


def _same_gpu(placement: Placement | None) -> bool:
    """Whether the whole target is on the same single GPU as the draft."""
    if placement is None or placement.draft is None or _on_cpu(placement, draft=False):
        return False
    return len(placement.target.devices) == 1 and placement.target.devices == placement.draft.devices


def _draft_share(cores: int, target: str, draft: str) -> int:
    """Cores for the draft while both models work: its share of the work if it makes N_AHEAD guesses per pass."""
    n_target, n_draft = model_bytes(target), model_bytes(draft)
    if not n_target or not n_draft:
        return 1
    work = N_AHEAD * n_draft / n_target
    return max(1, min(cores // 2, round(cores * work / (work + 1.0))))


def _team(path: str, cores: int) -> int:
    """Number of threads for a model that has so many cores."""
    return 1 if _tiny(path) else max(1, cores)


def _splits(cores: int, target: str, draft: str, share: int) -> list[tuple[int, int]]:
    """Ways to split the cores while both models work: (threads of the target, of the draft), the draft's ascending."""
    shares = {share, *(1 << i for i in range(cores.bit_length()))} if cores > 1 else set()
    shares = {_team(draft, n) for n in shares if 2 * n <= cores}
    return [(_team(target, cores - n), n) for n in sorted(shares)]


def place(
    o: EngineOptions, target: str | None, draft: str | None, *, n_ctx_remote: int = 0, drafted: bool = True
) -> tuple[_core.EngineOptions, Placement | None]:
    """Engine options for the two files, and their placement, which is None if no device takes part.

    While both models work, their threads together do not outnumber the cores. A model that works alone has all cores.
    target None: the target is on another machine, with a context of n_ctx_remote tokens. drafted: whether texts verify
    guesses (of the draft or of n-grams) by default. Raises BadValue (unknown device) or DoesNotFit.
    """
    if target is None:
        assert draft is not None
        out = _core.EngineOptions()
        out.n_ctx_remote = min(n_ctx_remote, o["n_ctx"] or n_ctx_remote)
        out.draft = place_alone(o, draft, draft=True)
        return out, None
    o, placement = resolve_auto(o, target, draft, devices())
    cores = usable_cores()
    draft_on_cpu = draft is not None and _on_cpu(placement, draft=True) and not _draft_on_gpu(o)
    both_on_cpu = draft_on_cpu and _on_cpu(placement, draft=False)
    share = _draft_share(cores, target, draft) if draft is not None and both_on_cpu else max(1, cores - 1)
    out = _core.EngineOptions()
    if draft is not None and both_on_cpu and not chosen(o):
        splits = _splits(cores, target, draft, share)
        n_draft, n_target = _team(draft, cores), _team(target, cores)
    else:
        splits = []
        n_draft = _n_threads(o, draft or "", share, draft=True)  # checks the options even if there is no draft
        n_target = _n_threads(o, target, cores - (n_draft if draft and drafted else 0), draft=False)
    likely = next(((t, d) for t, d in splits if d >= _team(draft or "", share)), (0, 0))
    out.remote_draft = o["draft_host"] is not None
    out.target = _model(o, target, n_target, draft=False, drafted=drafted, n_threads_beside=likely[0])
    if draft is not None:
        out.draft = _model(o, draft, n_draft, draft=True, n_threads_beside=likely[1])
        out.shared = _same_gpu(placement) or (both_on_cpu and _share_cores(out, cores))
        if out.shared and splits:
            out.splits, out.split = splits, splits.index(likely)
        if drafted:
            race = o["cpu_kernels"] == "auto"
            expect(out, target_on_cpu=placement is None, draft_on_cpu=draft_on_cpu, race=race)
        kernels.read_ahead(out.target.cpu_types, n_target)  # for types in both models the target's value counts
    return out, placement


def _share_cores(out: _core.EngineOptions, cores: int) -> bool:
    """Whether the models have neither separate CPUs nor enough cores for both."""
    cpus = [set(m.cpus) for m in (out.target, out.draft)]
    if all(cpus):
        return bool(cpus[0] & cpus[1])
    return out.target.n_threads + out.draft.n_threads > cores


def _tiny(path: str) -> bool:
    """Whether a pass takes only a millisecond. A team would then mostly wait for its slowest thread."""
    return 0 < model_bytes(path) < SMALL


def chosen(o: EngineOptions) -> bool:
    """Whether the user has given an option for threads or CPUs."""
    kinds = ("n_threads", "n_threads_batch", "cpu_mask", "cpu_range")
    names = [*kinds, *(f"{kind}_draft" for kind in kinds)]
    return any(o[name] is not None for name in names)  # type: ignore[literal-required]
