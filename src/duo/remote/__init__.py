"""The draft or the target on another machine: gRPC carries the two ring messages between the ends (see wire.proto)."""

from __future__ import annotations

import os

from duo.errors import DuoError


def need_grpc() -> None:
    """Before anything else of this package is imported. Raises DuoError if the extra is not installed."""
    # gRPC's own log is for its developers; what fails is told as a DuoError.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import google.protobuf  # noqa: F401
        import grpc  # noqa: F401
    except ImportError as e:
        raise DuoError(
            f"models on other machines need the extra duo[remote] ({e}); pip install 'duo[remote]'"
        ) from None
    try:
        import duo.remote.wire_pb2_grpc  # noqa: F401
    except Exception as e:  # generated code refuses older libraries, each in its own way
        why = str(e).split("\n")[0].split(", but")[0]
        raise DuoError(f"grpcio and protobuf do not fit duo ({why}); pip install -U 'duo[remote]'") from None
