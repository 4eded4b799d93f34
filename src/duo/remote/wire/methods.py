"""The service of wire.proto on gRPC. gRPC carries bytes, so that duo itself can answer a message that is invalid."""

from __future__ import annotations

from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import ProtocolError

ERROR_KEY = "duo-error"  # in the metadata after a refused text: the code of the error (duo.errors)
_SERVICE = wire.DESCRIPTOR.services_by_name["Host"]
M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """Raises ProtocolError."""
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):  # UnicodeDecodeError: protobuf without its C code
        raise ProtocolError("a message is not valid") from None


def to_bytes(message: Message) -> bytes:
    return message.SerializeToString()


def add_to_server(service: Any, server: grpc.aio.Server) -> None:
    """Registers the methods of `service`, found by name. They take bytes and return messages."""
    handlers = {}
    for method in _SERVICE.methods:
        kind = "stream_stream" if method.client_streaming else "unary_unary"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        handlers[method.name] = make(getattr(service, method.name), None, to_bytes)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))


def method_of(channel: grpc.Channel, name: str) -> Any:
    """A method that takes a message or an iterator of messages and returns bytes."""
    method = _SERVICE.methods_by_name[name]
    make = channel.stream_stream if method.client_streaming else channel.unary_unary
    return make(f"/{_SERVICE.full_name}/{name}", to_bytes, None)
