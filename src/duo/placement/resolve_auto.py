"""Resolves -ngl auto and -ngld auto, and checks the memory before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

from duo import _core
from duo.errors import BadValue, DoesNotFit
from duo.models.header import Header, read_header
from duo.models.paths import model_bytes
from duo.options.engine import EngineOptions
from duo.placement.devices import Device, device_names, tensor_overrides
from duo.placement.fit import Placement, Room, Wish, place_layers
from duo.placement.memory import Need, context, need_of
from duo.support.wording import gigabytes, plural


def rooms_of(devices: Sequence[Device]) -> dict[str, Room]:
    """Devices that can hold layers, by name."""
    host = next((d for d in devices if d.type == "cpu"), None)
    found = {}
    for d in devices:
        if d.type in ("cpu", "accel"):
            continue
        # Devices that share the machine's memory may report none.
        free, total = (d.free, d.total) if d.total or host is None else (host.free, host.total)
        found[d.name] = Room(d.name, free, total)
    return found


def devices_for(names: Sequence[str], devices: Sequence[Device]) -> tuple[str, ...]:
    """The devices that -dev means to the engine: no names mean every local GPU, and cuda0 is CUDA0. Raises BadValue."""
    if not names:
        return tuple(d.name for d in devices if d.type == "gpu")
    if list(names) == ["none"]:
        return ()
    rooms = rooms_of(devices)
    name_of = {name.lower(): name for name in rooms}
    for name in names:
        if name.lower() not in name_of:
            known = (
                ", ".join(["none", *rooms]) if rooms else "none (this build of llama-cpp-python has no other devices)"
            )
            raise BadValue(f"unknown device {name}; choose from {known}; duo --list-devices shows them")
    return tuple(name_of[name.lower()] for name in names)


def needs(o: EngineOptions, target: Header, draft: Header | None) -> tuple[Need, Need | None]:
    """The memory that the two models need with these options."""
    n_ubatch, flash = min(o["n_ubatch"], o["n_batch"]), o["flash_attn"] != "off"
    n_ctx = context(o["n_ctx"], target.n_ctx_train)
    of_target = need_of(
        target, n_ctx, type_k=o["type_k"], type_v=o["type_v"], n_ubatch=n_ubatch, flash_attn=flash,
        overrides=tensor_overrides(o["override_tensor"], draft=False),
    )  # fmt: skip
    if draft is None:
        return of_target, None
    n_ctx_draft = context(o["n_ctx_draft"] or None, draft.n_ctx_train, n_ctx)
    return of_target, need_of(
        draft, n_ctx_draft, draft=True, type_k=o["type_k_draft"], type_v=o["type_v_draft"], n_ubatch=n_ubatch,
        flash_attn=flash, overrides=tensor_overrides(o["override_tensor_draft"], draft=True),
    )  # fmt: skip


def _layers(value: int | str, need: Need) -> int | None:
    return None if value == "auto" else need.n_all if value == "all" or int(value) < 0 else int(value)


def placement_of(o: EngineOptions, target: Header, draft: Header | None, devices: Sequence[Device]) -> Placement:
    """The placement of both models with these options. Raises BadValue (unknown device) or DoesNotFit."""
    rooms = rooms_of(devices)
    need, need_draft = needs(o, target, draft)

    mine = devices_for(device_names(o["device"]), devices)
    theirs = () if draft is None else devices_for(device_names(o["device_draft"]), devices)
    shares = tuple(o["tensor_split"] or ())
    if o["split_mode"] == "none" and mine:
        if o["main_gpu"] >= len(mine):
            n = plural(len(mine), "device")
            raise BadValue(f"-mg is {o['main_gpu']}, but there {'is' if len(mine) == 1 else 'are'} {n}, counted from 0")
        mine, shares = mine[o["main_gpu"] : o["main_gpu"] + 1], ()
    if shares:
        shares = (shares + (0.0,) * len(mine))[: len(mine)]
    wish = Wish("target", need, mine, _layers(o["n_gpu_layers"], need), "-ngl", shares, bool(o["device"]))
    if need_draft is None:
        return place_layers(wish, None, list(rooms.values()))
    layers = _layers(o["n_gpu_layers_draft"], need_draft)
    wish_draft = Wish("draft", need_draft, theirs, layers, "-ngld", (), bool(o["device_draft"]))
    return place_layers(wish, wish_draft, list(rooms.values()))


def resolve_auto(
    o: EngineOptions, target: str, draft: str | None, devices: Sequence[Device]
) -> tuple[EngineOptions, Placement | None]:
    """The options with numbers instead of auto, and the placement, which is None if no device takes part.

    Raises BadValue (unknown device, unreadable file), UnknownModel or DoesNotFit.
    """
    paths = [p for p in (target, draft) if p is not None]
    uses_device = False
    for layers, names in (("n_gpu_layers", "device"), ("n_gpu_layers_draft", "device_draft"))[: len(paths)]:
        found = devices_for(device_names(o[names]), devices)  # type: ignore[literal-required]
        uses_device = uses_device or (o[layers] != 0 and bool(found))  # type: ignore[literal-required]
    readable = all(map(os.path.isfile, paths))  # if not, loading reports why
    if not uses_device or not readable:
        if readable:
            # Without a device both files are in the machine's memory.
            _check_host(o, sum(map(model_bytes, paths)), "")
        zeros = {name: 0 for name in ("n_gpu_layers", "n_gpu_layers_draft") if o[name] == "auto"}
        return cast(EngineOptions, {**o, **zeros}), None
    p = placement_of(o, read_header(target), None if draft is None else read_header(draft), devices)
    advice = "lower -c, " if p.target.auto or o["n_gpu_layers"] == "all" else "raise -ngl, lower -c, "
    _check_host(o, sum(x.bytes.host for x in (p.target, p.draft) if x is not None), advice)
    out = cast(EngineOptions, dict(o))
    if p.target.auto:
        out["n_gpu_layers"] = p.target.n_gpu_layers
        if o["tensor_split"] is None and len(p.target.devices) > 1 and o["split_mode"] != "none":
            out["tensor_split"] = [s / 2**30 for s in p.target.shares]
    if p.draft is not None and p.draft.auto:
        out["n_gpu_layers_draft"] = p.draft.n_gpu_layers
        out["device_draft"] = list(p.draft.devices) or ["none"]
    return out, p


def _check_host(o: EngineOptions, n_bytes: int, advice: str) -> None:
    """Raises DoesNotFit if loading would exhaust the machine's memory. A mapped file may be larger than that."""
    free = _core.memory_available()
    if n_bytes > free and o["load_mode"] != "mmap":
        raise DoesNotFit(
            f"the models need {gigabytes(n_bytes)} of the machine's memory, but only {gigabytes(free)} are free; "
            f"{advice}choose smaller files, or have them read from the disk again and again (--load-mode mmap)"
        )


# Options of the target that have a _draft twin.
_TWINS = ("n_gpu_layers", "device", "n_ctx", "type_k", "type_v", "override_tensor")


def resolve_auto_alone(o: EngineOptions, path: str, devices: Sequence[Device], *, draft: bool) -> EngineOptions:
    """The same for the one model of a host. Raises as resolve_auto."""
    if not draft:
        return resolve_auto(o, path, None, devices)[0]
    as_target = {**o, **{name: o[f"{name}_draft"] for name in _TWINS}}  # type: ignore[literal-required]
    layers = resolve_auto(cast(EngineOptions, as_target), path, None, devices)[0]["n_gpu_layers"]
    return cast(EngineOptions, {**o, "n_gpu_layers_draft": layers})
