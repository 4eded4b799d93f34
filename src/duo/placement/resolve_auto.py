"""Resolves -ngl auto, -ngld auto and -np auto, and checks the memory before anything is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace

from duo import _core
from duo.errors import BadValueError, DoesNotFitError
from duo.models.head import Head
from duo.models.header import Header, read_header
from duo.models.paths import model_bytes
from duo.options.model import ModelOptions
from duo.placement import kernels
from duo.placement.adapters import n_adapter_bytes, with_adapters
from duo.placement.context_fit import with_largest_context, with_least_context
from duo.placement.cpus import usable_cores
from duo.placement.device_rooms import devices_for, rooms_of
from duo.placement.devices import Device, default_flash_attn
from duo.placement.fit import ModelPlacement, PairPlacement, PlacementRequest, Room, place_layers
from duo.placement.host_memory import HostUse, check_host
from duo.placement.memory import Need, context, kept_on_cpu, most_texts, need_of
from duo.placement.mixture import without_experts
from duo.placement.packing import saved_bytes
from duo.placement.projector_device import CPU, projector_bytes
from duo.placement.states import N_MARKS
from duo.support.wording import plural

N_PADDING = 128  # csrc/llama/pair_check.cpp: sizes of one vocabulary differ by so much at most


def contexts(target: ModelOptions, draft: ModelOptions | None, headers: Sequence[Header]) -> list[int]:
    """Tokens in the context of each model. headers: of the models, in this order."""
    n_ctx = context(target.n_ctx, headers[0].n_ctx_train)
    if draft is None:
        return [n_ctx]
    # The limit of a draft head says how it was trained, not how far it can read.
    if Head.of(headers[1], mtp=draft.mtp):
        return [n_ctx, context(draft.n_ctx or None, n_ctx, n_ctx)]
    # As csrc/python/engine.cpp does (join_vocabularies), as far as headers tell it.
    most = n_ctx + n_ctx // 2 if _speak_differently(*headers) else n_ctx
    return [n_ctx, context(draft.n_ctx or None, headers[1].n_ctx_train, most)]


def _speak_differently(target: Header, draft: Header) -> bool:
    kinds = [[h.values.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")] for h in (target, draft)]
    return kinds[0] != kinds[1] or abs(target.n_vocab - draft.n_vocab) > N_PADDING


def _helped(m: ModelOptions, devices: Sequence[Device]) -> bool:
    """Whether a device computes prompts with weights of the CPU (csrc/llama/weights_loader.cpp). RPC servers do not."""
    names = devices_for(m.devices, devices)
    return m.op_offload and not m.strict and any(d.name in names and d.type != "rpc" for d in devices)


def _spared(m: ModelOptions, devices: Sequence[Device]) -> ModelOptions:
    """Without what crashes on its devices, unless the user asked for it."""
    flash_attn = default_flash_attn(devices, devices_for(m.devices, devices))
    if m.flash_attn != "auto" or flash_attn == "auto":
        return m
    return replace(m, op_offload=False) if m.n_gpu_layers == 0 else replace(m, flash_attn=flash_attn)


def needs(
    target: ModelOptions, draft: ModelOptions | None, headers: Sequence[Header], devices: Sequence[Device] = ()
) -> list[Need]:
    """The memory that each model needs. headers: of the models, in this order."""
    models = [m for m in (target, draft) if m is not None]
    estimates = [
        need_of(
            h, n_ctx, draft=m.role == "draft", type_k=m.type_k, type_v=m.type_v, n_ubatch=m.n_ubatch,
            flash_attn=m.flash_attn != "off", overrides=m.override_tensors, n_contexts=m.n_contexts,
            n_parallel=1 if m.n_parallel == "auto" else m.n_parallel,
            guesses=m.guesses or (m.role == "target" and draft is not None),
            mtp=m.mtp, shared=m is draft and m.mtp and m.path == target.path, helped=_helped(m, devices),
            n_marks=min(m.ctx_checkpoints, N_MARKS), offload_kqv=m.offload_kqv,
            attention_threads=_attention_threads(m, devices),
        )
        for m, h, n_ctx in zip(models, headers, contexts(target, draft, headers), strict=True)
    ]  # fmt: skip
    estimates = [with_adapters(n, m, h) for m, h, n in zip(models, headers, estimates, strict=True)]
    return [
        replace(n, host=n.host - _saved(m, devices) + _added(m, h, devices) + projector_bytes([m], devices)[CPU])
        for m, h, n in zip(models, headers, estimates, strict=True)
    ]


def _attention_threads(m: ModelOptions, devices: Sequence[Device]) -> int:
    """The threads of duo's attention, as far as can be told before loading (choose_kernels in weights_loader.cpp)."""
    on_cpu = m.n_gpu_layers == 0 or not devices_for(m.devices, devices)
    if not on_cpu or m.flash_attn == "off" or m.cpu_kernels == "stock" or not (m.repack and kernels.available()):
        return 0
    n = m.n_threads or len(m.cpus) or usable_cores()
    return max(n, m.n_threads_batch or len(m.cpus_batch))


def _rooms(target: ModelOptions, draft: ModelOptions | None, devices: Sequence[Device]) -> dict[str, Room]:
    models = [m for m in (target, draft) if m is not None]
    return rooms_of(devices, target.fit_target, projector_bytes(models, devices))


def _saved(m: ModelOptions, devices: Sequence[Device]) -> int:
    """Bytes of the machine's memory that requantising a draft saves."""
    return saved_bytes(m) if m.n_gpu_layers == 0 or not devices_for(m.devices, devices) else 0


def _added(m: ModelOptions, h: Header, devices: Sequence[Device]) -> int:
    """Bytes that weights of the CPU take beyond those of the file, because duo's kernels keep some scales in more."""
    if m.cpu_kernels == "stock" or m.strict or not kernels.available():
        return 0
    all_here = m.n_gpu_layers == 0 or not devices_for(m.devices, devices)
    on_cpu = None if all_here else kept_on_cpu(h, m.override_tensors)
    matrices = (t for t in h.tensors if len(t.shape) > 1 and (on_cpu is None or t.name in on_cpu))
    added = 0
    for t in matrices:
        n_columns, n_rows, *others = t.shape
        added += max(0, _core.packed_bytes(t.type, n_columns, n_rows) * math.prod(others) - t.n_bytes)
    return added


def _request(m: ModelOptions, need: Need, devices: Sequence[Device]) -> PlacementRequest:
    names, shares = devices_for(m.devices, devices), m.tensor_split
    if m.split_mode == "none" and names:
        if m.main_gpu >= len(names):
            n = plural(len(names), "device")
            raise BadValueError(
                f"-mg is {m.main_gpu}, but there {'is' if len(names) == 1 else 'are'} {n}, counted from 0"
            )
        names, shares = names[m.main_gpu : m.main_gpu + 1], ()
    if shares:
        shares = (shares + (0.0,) * len(names))[: len(names)]
    layers = None if m.n_gpu_layers == "auto" else need.n_all if m.n_gpu_layers == "all" else m.n_gpu_layers
    if layers is not None and layers < 0:
        layers = need.n_all
    return PlacementRequest(m.role, need, names, layers, m.flag("n_gpu_layers"), shares, bool(m.devices), m.n_cpu_moe)


def placement_of(
    target: ModelOptions, draft: ModelOptions | None, headers: Sequence[Header], devices: Sequence[Device]
) -> PairPlacement:
    """The placement of both models with these options. Raises BadValueError (unknown device) or DoesNotFitError."""
    need = needs(target, draft, headers, devices)
    request = _request(target, need[0], devices)
    draft_request = None if draft is None else _request(draft, need[1], devices)
    return place_layers(request, draft_request, list(_rooms(target, draft, devices).values()))


def with_experts_placed(target: ModelOptions, draft: ModelOptions | None, devices: Sequence[Device]) -> ModelOptions:
    """The target with its experts on the CPU as far as it would not fit otherwise. What the user says of tensors or of
    the number of layers counts more. Raises BadValueError or DoesNotFitError."""
    if target.n_gpu_layers != "auto" or target.override_tensors or not devices_for(target.devices, devices):
        return target
    headers = [read_header(m.path) for m in (target, draft) if m is not None]
    return without_experts(target, headers[0], lambda t: placement_of(t, draft, headers, devices))


def with_context_fitted(target: ModelOptions, draft: ModelOptions | None, devices: Sequence[Device]) -> ModelOptions:
    """The target with the context of --fit-ctx. Raises BadValueError or DoesNotFitError."""
    if target.fit_ctx is None:
        return target
    headers = [read_header(m.path) for m in (target, draft) if m is not None]
    return with_largest_context(
        target,
        headers[0],
        lambda t: placement_of(t, draft, headers, devices),
        lambda t, least: _fits(t, draft, (least, draft), headers, devices),
    )


def texts_that_fit(target: ModelOptions, draft: ModelOptions | None, devices: Sequence[Device]) -> int:
    """The number of -np auto: as many whole contexts as fit, N_TEXTS_MOST at most.

    No layer leaves its device for a further text. Raises BadValueError (unknown device, unreadable file).
    """
    models = [m for m in (target, draft) if m is not None]
    if not all(os.path.isfile(m.path) for m in models):  # loading reports why
        return 1
    headers = [read_header(m.path) for m in models]
    most = most_texts(headers, contexts(target, draft, headers))

    def with_n(n: int) -> tuple[ModelOptions, ModelOptions | None]:
        return target.for_texts(n), None if draft is None else draft.for_texts(n)

    return next((n for n in range(most, 1, -1) if _fits(*with_n(n), with_n(1), headers, devices)), 1)


def _fits(
    target: ModelOptions,
    draft: ModelOptions | None,
    one: tuple[ModelOptions, ModelOptions | None],
    headers: Sequence[Header],
    devices: Sequence[Device],
) -> bool:
    """Whether there is memory for this, with as many layers on the devices as for the other."""
    try:
        placed, of_one = (placement_of(*o, headers, devices).models for o in ((target, draft), one))
    except DoesNotFitError:
        return False
    free = _core.memory_available()
    rooms = {"": Room("", free, free), **_rooms(target, draft, devices)}
    used = {"": sum(p.bytes.host for p in placed)}
    for p in placed:
        for name, n_bytes in zip(p.devices, p.bytes.devices, strict=True):
            used[name] = used.get(name, 0) + n_bytes
    same_layers = [p.n_gpu_layers for p in placed] == [p.n_gpu_layers for p in of_one]
    return same_layers and all(n <= rooms[name].usable for name, n in used.items())


def for_vocabulary(target: ModelOptions) -> ModelOptions:
    """The options with numbers instead of auto, for a model of which only the vocabulary is loaded."""
    return _without_auto(target.for_texts(1) if target.n_parallel == "auto" else target)


def resolve_auto(
    target: ModelOptions, draft: ModelOptions | None, devices: Sequence[Device]
) -> tuple[ModelOptions, ModelOptions | None, PairPlacement | None]:
    """The options with numbers instead of auto, and the placement, which is None if no device takes part.

    target: or the one model of a host, whatever its role. Raises BadValueError (unknown device, unreadable file),
    UnknownModelError or DoesNotFitError.
    """
    target, draft = _spared(target, devices), None if draft is None else _spared(draft, devices)
    readable = all(os.path.isfile(m.path) for m in (target, draft) if m is not None)  # if not, loading reports why
    if readable:
        # With --fit-ctx texts are counted first, or else the context of one text would take their room.
        if target.fit_ctx is not None and target.n_parallel == "auto":
            least = with_least_context(target, read_header(target.path))
            if least is not target:
                n = texts_that_fit(with_experts_placed(least, draft, devices), draft, devices)
                target, draft = target.for_texts(n), None if draft is None else draft.for_texts(n)
        target = with_experts_placed(with_context_fitted(target, draft, devices), draft, devices)
    if target.n_parallel == "auto":
        n = texts_that_fit(target, draft, devices)
        target, draft = target.for_texts(n), None if draft is None else draft.for_texts(n)
    models = [m for m in (target, draft) if m is not None]
    device_names = [devices_for(m.devices, devices) for m in models]  # of both, to report an unknown device
    uses_device = any(
        names and (m.n_gpu_layers != 0 or _helped(m, devices)) for m, names in zip(models, device_names, strict=True)
    )
    if not uses_device or not readable:
        if readable:
            _check_cpu(target, draft, devices)
        return _without_auto(target), None if draft is None else _without_auto(draft), None
    headers = [read_header(m.path) for m in models]
    p = placement_of(target, draft, headers, devices)
    of_all, of_target = [x.bytes for x in p.models], p.target.bytes
    n_cache = sum(b.host_cache for b in of_all)
    use = HostUse(sum(b.host for b in of_all), n_cache, of_target.host - of_target.host_cache)
    may_move = not p.target.auto and target.n_gpu_layers != "all"
    check_host(target, use, on_device=True, drafted=draft is not None, may_move=may_move)
    placed_draft = None if draft is None or p.draft is None else _placed(draft, p.draft)
    return _placed(target, p.target), placed_draft, p


def _check_cpu(target: ModelOptions, draft: ModelOptions | None, devices: Sequence[Device]) -> None:
    """Whether the machine's memory holds everything. Without a device all of the files is there, and one file twice if
    its draft is packed in another way. Raises DoesNotFitError."""
    models = [m for m in (target, draft) if m is not None]
    headers = [read_header(m.path) for m in models]
    saved = sum(_saved(m, devices) for m in models)
    apart = models if saved else list({m.path: m for m in models}.values())
    n_weights = sum(model_bytes(m.path) + _added(m, read_header(m.path), devices) for m in apart) - saved
    n_weights += sum(n_adapter_bytes(m) for m in models) + projector_bytes(models, devices)[CPU]
    n_cache = sum(n.total_cache + n.marks for n in needs(target, draft, headers, devices))
    use = HostUse(n_weights + n_cache, n_cache, model_bytes(target.path))
    check_host(target, use, on_device=False, drafted=draft is not None)


def _without_auto(m: ModelOptions) -> ModelOptions:
    return replace(m, n_gpu_layers=0) if m.n_gpu_layers == "auto" else m


def _placed(m: ModelOptions, p: ModelPlacement) -> ModelOptions:
    m = replace(m, op_offload=m.op_offload and not p.crowded)
    on_device = any(memory != "CPU" for _, memory in m.override_tensors)
    if not p.n_gpu_layers and p.crowded and not on_device:
        return replace(m, n_gpu_layers=0, devices=("none",))  # libllama would take memory there all the same
    if not p.auto:
        return m
    if m.role == "draft":
        return replace(m, n_gpu_layers=p.n_gpu_layers, devices=p.devices or ("none",))
    shares = m.tensor_split
    if not shares and len(p.devices) > 1 and m.split_mode != "none":
        shares = tuple(s / 2**30 for s in p.shares)
    devices = p.devices if p.left_out and not on_device else m.devices
    return replace(m, n_gpu_layers=p.n_gpu_layers, devices=devices, tensor_split=shares)
