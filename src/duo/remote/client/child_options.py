"""Which model the child process has, and its command line."""

from __future__ import annotations

import sys
from typing import Any

from duo.errors import BadValueError
from duo.options.engine import EngineOptions
from duo.options.host import of_host
from duo.options.model import ModelOptions, Role
from duo.options.tables import ENGINE_OPTIONS
from duo.placement.devices import devices
from duo.remote.parent import WITH_PARENT


def names_rpc(m: ModelOptions) -> bool:
    """Its -dev or -devd names a device of an RPC server."""
    return any(name.upper().startswith("RPC") for name in m.devices)


def remote_side(o: EngineOptions, *, has_draft: bool) -> Role | None:
    """The model that uses the RPC servers; None: no --rpc. Raises BadValueError: neither model uses them, or both."""
    models = ModelOptions.of(o, "target"), ModelOptions.of(o, "draft")
    remote = [m for m in models if names_rpc(m)]
    if not o["rpc"]:
        for m in remote:
            # A program may have registered RPC devices itself.
            if not set(m.devices) <= {d.name for d in devices()}:
                value = f"{m.flag('device')} {','.join(m.devices)}"
                raise BadValueError(f"{value} names a device of an RPC server; name the servers with --rpc")
        return None
    if len(remote) == 2:
        raise BadValueError("-dev and -devd both name devices of RPC servers; put one model on this machine")
    if remote and remote[0].role == "target":
        return "target"
    if not has_draft:
        raise BadValueError(
            "--rpc is for the draft, but there is no draft; give one (-md), or RPC devices for the target (-dev)"
        )
    if models[1].devices and not remote:
        raise BadValueError(
            "--rpc was given, but neither -devd nor -dev names an RPC device; leave out --rpc or name one"
        )
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
    value = int(value) if isinstance(value, bool) else value
    return [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def host_command(side: Role, path: str, o: EngineOptions, address: str) -> list[str]:
    """The command line of a host for this model, with the user's options for it."""
    out = ["draft-host", "-md", path] if side == "draft" else ["verify-host", "-m", path]
    chosen = dict(o)
    if side == "draft" and o["n_ctx_draft"] is None:
        chosen["n_ctx_draft"] = o["n_ctx"]
    if side == "draft" and o["cpu_strict_draft"] is None:
        chosen["cpu_strict_draft"] = o["cpu_strict"]
    for name, option in of_host("draft" if side == "draft" else "verify", ENGINE_OPTIONS).items():
        if chosen[name] is not None and chosen[name] != option.default:
            out += _spelled(name, chosen[name])
    return [sys.executable, "-m", "duo", *out, "--listen", address, WITH_PARENT]
