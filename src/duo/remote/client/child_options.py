"""Which model the child process has, and its command line."""

from __future__ import annotations

import sys
from typing import Any, Literal

from duo.errors import BadValue
from duo.options.engine import EngineOptions
from duo.options.host import of_host
from duo.options.tables import ENGINE_OPTIONS
from duo.placement.devices import device_names, devices
from duo.remote.parent import WITH_PARENT

Side = Literal["draft", "target"]


def names_rpc(value: str | list[str] | None) -> bool:
    """This -dev or -devd names a device of an RPC server."""
    return any(name.upper().startswith("RPC") for name in device_names(value))


def remote_side(o: EngineOptions, *, has_draft: bool) -> Side | None:
    """The model that uses the RPC servers; None: no --rpc. Raises BadValue: neither model uses them, or both."""
    target, draft = names_rpc(o["device"]), names_rpc(o["device_draft"])
    if not o["rpc"]:
        for name, flag, there in (("device", "-dev", target), ("device_draft", "-devd", draft)):
            # A program may have registered RPC devices itself.
            if there and not set(device_names(o[name])) <= {d.name for d in devices()}:  # type: ignore[literal-required]
                value = ",".join(device_names(o[name]))  # type: ignore[literal-required]
                raise BadValue(f"{flag} {value} names a device of an RPC server; name the servers with --rpc")
        return None
    if target and draft:
        raise BadValue("-dev and -devd both name devices of RPC servers; put one model on this machine")
    if target:
        return "target"
    if not has_draft:
        raise BadValue(
            "--rpc is for the draft, but there is no draft; give one (-md), or RPC devices for the target (-dev)"
        )
    if o["device_draft"] is not None and not draft:
        raise BadValue("--rpc was given, but neither -devd nor -dev names an RPC device; leave out --rpc or name one")
    return "draft"


def _spelled(name: str, value: Any) -> list[str]:
    flag = ENGINE_OPTIONS[name].flags[0]
    if "/" in flag:
        return [flag.split("/")[0 if value else 1]]
    if name == "kv_overrides":
        kinds = {bool: "bool", int: "int", float: "float", str: "str"}
        value = [f"{key}={kinds[type(x)]}:{str(x).lower() if isinstance(x, bool) else x}" for key, x in value.items()]
    if name == "control_vector_layer_range":
        return [flag, *map(str, value)]
    if name in ("lora_scaled", "control_vector_scaled"):
        value = [f"{path}:{scale}" for path, scale in value.items()]
    return [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def host_command(side: Side, path: str, o: EngineOptions, address: str) -> list[str]:
    """The command line of a host for this model, with the user's options for it."""
    out = ["draft-host", "-md", path] if side == "draft" else ["verify-host", "-m", path]
    chosen = dict(o)
    if side == "draft" and o["n_ctx_draft"] is None:
        chosen["n_ctx_draft"] = o["n_ctx"]
    for name, found in of_host("draft" if side == "draft" else "verify", ENGINE_OPTIONS).items():
        if chosen[name] is not None and chosen[name] != found.default:
            out += _spelled(name, chosen[name])
    return [sys.executable, "-m", "duo", *out, "--listen", address, WITH_PARENT]
