"""The draft or the target on another machine: gRPC carries the two ring messages between the ends (see wire.proto)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duo.errors import DuoError

if TYPE_CHECKING:
    from duo import _core
    from duo.models.paths import PathLike
    from duo.options.engine import EngineOptions
    from duo.remote.client.child import Child
    from duo.remote.client.client import Client
    from duo.remote.client.connection import ClientSettings


def need_grpc() -> None:
    """Before anything else of this package is imported. Raises DuoError if the extra is not installed."""
    # gRPC's own log is for its developers; what fails is told as a DuoError.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import google.protobuf  # noqa: F401
        import grpc  # noqa: F401
    except ImportError as e:
        raise DuoError(
            f"models on other machines need the extra duo-llama[remote] ({e}); pip install 'duo-llama[remote]'"
        ) from None
    try:
        import duo.remote.wire.wire_pb2  # noqa: F401
    except Exception as e:  # generated code refuses older libraries, in its own way
        why = str(e).split("\n")[0]
        raise DuoError(f"protobuf does not fit duo ({why}); pip install -U 'duo-llama[remote]'") from None


def in_child(
    model: PathLike | None, draft: PathLike | None, o: EngineOptions
) -> tuple[PathLike | None, PathLike | None, EngineOptions, Child | None]:
    """Where --rpc was given: a child for the model that it is for, what is left of the pair, and options that name the
    child as the other's host. Raises DuoError."""
    from duo.remote.client.child_options import remote_side

    if not o["rpc"]:
        remote_side(o, has_draft=draft is not None)  # an RPC device without a server
        return model, draft, o, None
    need_grpc()
    from duo.remote.client.in_child import in_child as to_child

    return to_child(model, draft, o)


def host_of(o: EngineOptions, child: Child | None) -> ClientSettings | None:
    """The host that a Duo's options name; None: both models are here. Raises DuoError."""
    if o["draft_host"] is None and o["verify_host"] is None:
        return None
    need_grpc()
    from duo.remote.client.attach import settings_of

    return settings_of(o, child)


def n_ctx_remote(host: ClientSettings | None) -> int:
    """Tokens of a verify host's context, 0 where the target is here. Raises DuoError if the host is not there."""
    if host is None or host.role != "verify":
        return 0
    from duo.remote.client.attach import context_of

    return context_of(host)


def attach(host: ClientSettings, engine: _core.Engine) -> Client:
    """Connects an engine's open end to its host. Raises DuoError."""
    from duo.remote.client.attach import attach as to_host

    return to_host(host, engine)
