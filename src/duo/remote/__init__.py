"""The draft or the target on another machine: gRPC carries the messages of both rings (see wire.proto)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duo.errors import MissingPackageError
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo import _core
    from duo.models.paths import PathLike
    from duo.options.engine import EngineOptions
    from duo.remote.client.child import HostChild
    from duo.remote.client.clients import Clients
    from duo.remote.client.connection import ClientSettings


def need_grpc() -> None:
    """Call before importing anything else from this package. Raises MissingPackageError: the extra is not installed."""
    # gRPC's own log is for its developers; duo reports failures as a DuoError.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import google.protobuf  # noqa: F401
        import grpc  # noqa: F401
    except ImportError as e:
        raise MissingPackageError(
            f"models on other machines need the extra duo-llama[remote] ({e}); pip install 'duo-llama[remote]'"
        ) from None
    try:
        import duo.remote.wire.wire_pb2  # noqa: F401
    except Exception as e:  # generated code checks the version of protobuf and raises its own errors
        why = one_line(e, 200)
        raise MissingPackageError(
            f"this protobuf does not work with duo ({why}); pip install -U 'duo-llama[remote]'"
        ) from None


def in_child(
    model: PathLike | None, draft: PathLike | None, o: EngineOptions
) -> tuple[PathLike | None, PathLike | None, EngineOptions, HostChild | None]:
    """With --rpc: the models that stay in this process, options that name the child process as host, and the child.

    Without --rpc the models and options come back unchanged. Raises DuoError.
    """
    from duo.remote.client.child_options import remote_side

    if not o["rpc"]:
        remote_side(o, has_draft=draft is not None)  # an RPC device without a server
        return model, draft, o, None
    need_grpc()
    from duo.remote.client.in_child import in_child as to_child

    return to_child(model, draft, o)


def host_of(o: EngineOptions, child: HostChild | None) -> ClientSettings | None:
    """The host that the options of a Duo name; None: both models are on this machine. Raises DuoError."""
    if o["draft_host"] is None and o["verify_host"] is None:
        return None
    need_grpc()
    from duo.remote.client.attach import settings_of

    return settings_of(o, child)


def n_ctx_remote(host: ClientSettings | None, n_ctx: int | None) -> int:
    """Tokens in the context of the verify host, n_ctx at most; 0: the target is on this machine. Raises DuoError: no
    such host."""
    if host is None or host.role != "verify":
        return 0
    from duo.remote.client.attach import context_of

    n_host = context_of(host)
    return min(n_host, n_ctx or n_host)


def attach(host: ClientSettings, engine: _core.Engine) -> Clients:
    """Connects the open ends of an engine to its host. Raises DuoError."""
    from duo.remote.client.attach import attach as to_host

    return to_host(host, engine)
