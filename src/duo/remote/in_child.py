"""A model on GGML RPC devices: in a child process, which is a host like any other."""

from __future__ import annotations

import os

from duo import rpc
from duo.config import EngineOptions
from duo.demo import demo_pair
from duo.errors import DuoError
from duo.header import read_header
from duo.remote.child import Child
from duo.remote.child_options import host_command, remote_side

Path = str | os.PathLike[str] | None


def in_child(model: Path, draft: Path, o: EngineOptions) -> tuple[Path, Path, EngineOptions, Child]:
    """The pair's other model, options that name the child as its host, and the child, not started. Raises DuoError."""
    if o["draft_host"] is not None or o["verify_host"] is not None:
        raise DuoError("--rpc and --draft-host or --verify-host were given; a model can be on one of them, choose")
    if model is None and draft is None:
        model, draft = demo_pair()
    side = remote_side(o, has_draft=draft is not None)
    rpc.require_rpc()
    servers = o["rpc"] or []
    name = f"the RPC server{'s' * (len(servers) > 1)} {' and '.join(servers)}"
    here: EngineOptions = {**o, "rpc": None, "device_draft": None}
    if side == "draft":
        if model is None or draft is None:
            raise DuoError("a draft was given without a target; give the target too (-m)")
        path = _checked(draft)
        child = Child(lambda address: host_command("draft", path, o, address), servers=servers, name=name)
        here["draft_host"] = child.address
        return model, None, here, child
    if model is None or draft is None:
        raise DuoError("a target on RPC devices needs a draft on this machine; give one (-md)")
    path = _checked(model)
    child = Child(lambda address: host_command("target", path, o, address), servers=servers, name=name)
    here |= {"device": None, "device_draft": o["device_draft"], "verify_host": child.address}
    return None, draft, here, child


def _checked(model: str | os.PathLike[str]) -> str:
    """The path of a file that can be read: a mistake is told whether the servers are there or not."""
    path = os.fsdecode(model)
    read_header(path)
    return path
