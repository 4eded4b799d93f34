"""A model on GGML RPC devices runs in a child process, which is a normal host."""

from __future__ import annotations

from duo.errors import BadValueError
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.models.paths import PathLike, path
from duo.options.engine import EngineOptions
from duo.remote.client.child import HostChild
from duo.remote.client.child_options import host_command, remote_side
from duo.remote.rpc import server as rpc


def in_child(
    model: PathLike | None, draft: PathLike | None, o: EngineOptions
) -> tuple[PathLike | None, PathLike | None, EngineOptions, HostChild]:
    """The models that stay in this process, options that name the child as host, and the child, not started.

    Raises DuoError.
    """
    if o["draft_host"] is not None or o["verify_host"] is not None:
        raise BadValueError("--rpc was given with --draft-host or --verify-host; choose one")
    if model is None and draft is None:
        model, draft = demo_pair()
    side = remote_side(o, has_draft=draft is not None)
    assert side is not None
    rpc.require_rpc()
    servers = o["rpc"] or []
    name = f"the RPC {'server' if len(servers) == 1 else 'servers'} {' and '.join(servers)}"
    if model is None:
        raise BadValueError("a draft was given without a target; give the target too (-m)")
    if draft is None:
        raise BadValueError("a target on RPC devices needs a draft on this machine; give one (-md)")
    remote_path = path(draft, "draft") if side == "draft" else path(model, "target")
    read_header(remote_path)  # reports a bad file even if the servers are not there
    child = HostChild(lambda address: host_command(side, remote_path, o, address), servers=servers, name=name)
    if side == "draft":
        return model, None, {**o, "rpc": None, "device_draft": None, "draft_host": child.address}, child
    return None, draft, {**o, "rpc": None, "device": None, "verify_host": child.address}, child
