"""Chooses CPUs and devices for each model, from the user's options and the machine."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, cast

from duo import _core
from duo.errors import UnknownModelError
from duo.models.header import read_header
from duo.models.paths import model_bytes
from duo.options.context import ContextOptions
from duo.options.model import ModelOptions
from duo.options.tables import ENGINE_OPTIONS
from duo.placement import kernels, packed
from duo.placement.cpus import usable_cores
from duo.placement.devices import default_devices, devices
from duo.placement.fit import PairPlacement
from duo.placement.memory import kept_on_cpu
from duo.placement.packing import cheap_draft
from duo.placement.prior import SMALL, expect
from duo.placement.resolve_auto import for_vocabulary, resolve_auto
from duo.placement.teams import teams
from duo.support.context import N_CTX_DEFAULT

N_AHEAD = 3.0  # the draft should get cores for so many guesses per pass of the target


def _on_gpu(o: ModelOptions) -> bool:
    if o.devices == ("none",) or o.n_gpu_layers == 0:
        return False
    return bool(o.devices or default_devices(devices()))


def _model(
    o: ModelOptions, n_threads: int, *, drafted: bool = False, n_threads_beside: int = 0, n_ctx_most: int = 0
) -> _core.ModelOptions:
    """drafted: passes verify guesses. n_threads_beside: while the other model works; 0: n_threads. n_ctx_most: limit of
    the context if the user gave none; 0: no limit."""
    m = _core.ModelOptions()
    m.path = os.fsencode(o.path)
    m.devices, m.cpus, m.override_tensors = list(o.devices), list(o.cpus), list(o.override_tensors)
    m.n_batch, m.n_ubatch = o.n_batch, o.n_ubatch
    m.n_parallel, m.n_contexts = int(o.n_parallel), o.n_contexts  # auto is resolved
    m.n_ctx, m.n_ctx_most = o.n_ctx or 0, n_ctx_most if o.n_ctx is None else 0
    m.flash_attn, m.load_mode, m.strict = o.flash_attn, o.load_mode, o.strict and o.role == "target"
    m.offload_kqv, m.op_offload, m.mtp = o.offload_kqv, o.op_offload, o.mtp and o.role == "draft"
    m.type_k, m.type_v = o.type_k, o.type_v
    m.check_tensors, m.host_buffers, m.repack = o.check_tensors, o.host_buffers, o.repack
    m.special = o.special
    m.tensor_split, m.split_mode, m.main_gpu = list(o.tensor_split), o.split_mode, o.main_gpu
    m.n_threads, m.n_threads_batch = n_threads, o.n_threads_batch or len(o.cpus_batch) or n_threads
    m.narrow_team, m.wide_team = teams(o)
    m.n_marks, m.mark_step, m.lazy_mode = o.ctx_checkpoints, o.checkpoint_min_step, o.lazy_mode
    m.n_gpu_layers = -1 if o.n_gpu_layers == "all" else int(o.n_gpu_layers)
    _set_context(m, o.context)
    # No race under --strict: duo's kernels give the same bits at a lower cost than stock ones, and a race would use the
    # stock ones before ggml is set up for it.
    choice = "duo" if o.strict and o.cpu_kernels == "auto" and kernels.available() else o.cpu_kernels
    choice = choice if o.repack else "stock"
    n_gpu_layers = m.n_gpu_layers if _on_gpu(o) else 0
    sizes = sorted({n_threads, n_threads_beside or n_threads})
    # A draft's step over several branches is as wide as a verification.
    wide = drafted or o.role == "draft"
    m.cpu_types = kernels.chosen_types(
        choice, o.path, n_gpu_layers, sizes, m.n_threads_batch, drafted=wide, overrides=o.override_tensors
    )
    if m.loras:
        m.cpu_types = []  # libllama puts an adapter beside its weights, and duo's memory is for weights alone
    if n_gpu_layers == 0 and not m.loras:
        m.packing, m.draft_vocab = cheap_draft(o, sizes)
    m.packed = packed.choose(o, m.packing)
    if m.packing[0]:  # no device reads such weights
        m.op_offload = False
        kernels.read_ahead(m.packing[:1], n_threads)
    kernels.read_ahead(m.cpu_types, n_threads)
    return m


def _set_context(m: _core.ModelOptions, o: ContextOptions) -> None:
    m.loras = scaled_files(o, "lora", "LoRA adapter")
    if o["lora_init_without_apply"]:
        m.loras = [(file, 0.0) for file, _ in m.loras]
    m.control_vectors = scaled_files(o, "control_vector", "control vector")
    m.control_first, m.control_last = o["control_vector_layer_range"] or (0, 0)
    m.rope_scaling, m.kv_overrides = o["rope_scaling_type"] or "", o["kv_overrides"] or {}
    m.rope_freq_base, m.rope_freq_scale = o["rope_freq_base"], o["rope_freq_scale"]
    m.yarn_orig_ctx, m.yarn_ext_factor, m.yarn_attn_factor = (
        o["yarn_orig_ctx"], o["yarn_ext_factor"], o["yarn_attn_factor"],
    )  # fmt: skip
    m.yarn_beta_slow, m.yarn_beta_fast = o["yarn_beta_slow"], o["yarn_beta_fast"]


def scaled_files(o: ContextOptions, option: str, what: str) -> list[tuple[str | bytes, float]]:
    """Files of the target and their scales. Raises UnknownModelError: there is no such file."""
    options = cast("dict[str, Any]", o)
    scales = [*((name, 1.0) for name in options[option] or ()), *(options[f"{option}_scaled"] or {}).items()]
    for name, _ in scales:
        if not os.path.isfile(name):
            raise UnknownModelError(f"there is no {what} {name!r} ({ENGINE_OPTIONS[option].flags[0]}); check the path")
    return [(os.fsencode(name), scale) for name, scale in scales]


def _n_threads(o: ModelOptions, share: int) -> int:
    """The number that the user gave, or the number of CPUs that the user named; otherwise `share`, or one thread for a
    tiny model. A draft on a GPU needs one thread, which only launches kernels, unless some weights stay on the CPU."""
    n = o.n_threads or len(o.cpus)
    return n or (1 if o.role == "draft" and _on_gpu(o) and not _keeps_on_cpu(o) else _team(o.path, share))


def place_alone(o: ModelOptions) -> _core.ModelOptions:
    """Options for the one model of a host, which has all cores. Raises as `place`."""
    o, _, _ = resolve_auto(o, None, devices())
    return _model(o, _n_threads(o, usable_cores()), n_ctx_most=N_CTX_DEFAULT)


def _keeps_on_cpu(m: ModelOptions) -> bool:
    """Whether some weights are on the CPU because of -ot or -cmoe, whatever layers are on a device."""
    may_keep = any(memory == "CPU" for _, memory in m.override_tensors) and os.path.isfile(m.path)
    return may_keep and bool(kept_on_cpu(read_header(m.path), m.override_tensors))


def _on_cpu(m: ModelOptions, placement: PairPlacement | None) -> bool:
    """Whether the CPU computes some of the model's layers."""
    placed = None if placement is None else placement.draft if m.role == "draft" else placement.target
    return placed is None or placed.n_gpu_layers < placed.n_all or _keeps_on_cpu(m)


def _same_gpu(target: ModelOptions, placement: PairPlacement | None) -> bool:
    """Whether the whole target is on the same single GPU as the draft."""
    if placement is None or placement.draft is None or _on_cpu(target, placement):
        return False
    return len(placement.target.devices) == 1 and placement.target.devices == placement.draft.devices


def _bytes(m: ModelOptions) -> int:
    """Bytes that a step or a pass reads; 0: unknown."""
    if m.role == "draft" and m.mtp and os.path.isfile(m.path):
        h = read_header(m.path)
        return sum(t.n_bytes for t in h.tensors if (t.layer or 0) >= h.n_trunk or t.name == "output.weight")
    return model_bytes(m.path)


def _draft_share(cores: int, target: ModelOptions, draft: ModelOptions) -> int:
    """Cores for the draft while both models work: its share of the work if it makes N_AHEAD guesses per pass."""
    n_target, n_draft = _bytes(target), _bytes(draft)
    if not n_target or not n_draft:
        return 1
    work = N_AHEAD * n_draft / n_target
    return max(1, min(cores // 2, round(cores * work / (work + 1.0))))


def _team(path: str, cores: int) -> int:
    """Number of threads for a model that has so many cores."""
    return 1 if _tiny(path) else max(1, cores)


def _split(cores: int, target: str, draft: str, share: int) -> tuple[int, int]:
    """Threads of the target and of the draft while both work; (0, 0): there is one core."""
    n_draft = _team(draft, share)
    return (_team(target, cores - n_draft), n_draft) if cores > 1 else (0, 0)


def place(
    target: ModelOptions | None,
    draft: ModelOptions | None,
    *,
    n_ctx_remote: int = 0,
    drafted: bool = True,
    vocab_only: bool = False,
) -> tuple[_core.EngineOptions, PairPlacement | None]:
    """Engine options for the models, and their placement, which is None if no device takes part.

    While both models work, their threads together do not outnumber the cores. A model that works alone has all cores.
    target None: it is on another machine, with a context of n_ctx_remote tokens. drafted: whether texts verify guesses
    (of the draft or of n-grams) by default. vocab_only: of the target, only the vocabulary is loaded. Raises
    BadValueError (unknown device) or DoesNotFitError.
    """
    out = _core.EngineOptions()
    if target is None:
        assert draft is not None
        out.n_ctx_remote = n_ctx_remote
        if not draft.n_ctx and os.path.isfile(draft.path):  # as the engine chooses it
            draft = replace(draft, n_ctx=min(read_header(draft.path).n_ctx_train, n_ctx_remote))
        out.draft = place_alone(draft)
        out.n_parallel = out.draft.n_parallel
        return out, None
    if vocab_only:
        target, placement = for_vocabulary(target), None
    else:
        target, draft, placement = resolve_auto(target, draft, devices())
    cores = usable_cores()
    # Numbers that the user chooses may mean efficiency cores, too: the draft on them, the target on the others.
    chosen = target.chooses_threads or (draft is not None and draft.chooses_threads)
    n_all = usable_cores(slow=True) if chosen else cores
    draft_on_cpu = draft is not None and _on_cpu(draft, placement) and (not _on_gpu(draft) or _keeps_on_cpu(draft))
    both_on_cpu = draft_on_cpu and _on_cpu(target, placement)
    share: int = max(1, cores - 1)
    split = (0, 0)
    if draft is not None and both_on_cpu:
        share = _draft_share(cores, target, draft)
    if draft is not None and both_on_cpu and not chosen:
        split = _split(cores, target.path, draft.path, share)
        n_draft, n_target = _team(draft.path, cores), _team(target.path, cores)
    else:
        n_draft = 0 if draft is None else _n_threads(draft, share)
        n_target = _n_threads(target, min(cores, n_all - (n_draft if drafted else 0)))
    out.n_parallel = int(target.n_parallel)
    out.target = _model(target, n_target, drafted=drafted, n_threads_beside=split[0], n_ctx_most=N_CTX_DEFAULT)
    out.target.vocab_only = vocab_only
    if draft is not None:
        out.draft = _model(draft, n_draft, n_threads_beside=split[1])
        out.shared = _same_gpu(target, placement) or (both_on_cpu and _share_cores(out, n_all))
        if out.shared:
            out.split = split
        if drafted:
            race = target.cpu_kernels == "auto"
            expect(
                out,
                target_on_cpu=placement is None or not placement.target.n_gpu_layers,
                draft_on_cpu=draft_on_cpu and not _on_gpu(draft),
                race=race,
            )
        kernels.read_ahead(out.target.cpu_types, n_target)  # for types in both models the target's value counts
    return out, placement


def _share_cores(out: _core.EngineOptions, cores: int) -> bool:
    """Whether the models have neither separate CPUs nor enough cores for both."""
    # Where no CPUs are named for passes of one row, a model may use any.
    cpus = [{*m.cpus, *m.narrow_team[0], *m.wide_team[0]} for m in (out.target, out.draft) if m.cpus]
    if len(cpus) == 2:
        return bool(cpus[0] & cpus[1])
    return out.target.n_threads + out.draft.n_threads > cores


def _tiny(path: str) -> bool:
    """Whether a pass takes only a millisecond. A team would then mostly wait for its slowest thread."""
    return 0 < model_bytes(path) < SMALL
