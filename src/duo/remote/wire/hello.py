"""The handshake: both ends send their identity, and an end that cannot work with the other says why."""

from __future__ import annotations

from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import printable
from duo.remote.wire.identity import Identity, mismatch

PROTOCOL = 3  # raised with every field that a peer must not ignore


def version() -> str:
    """The version of duo."""
    from duo import __version__

    return __version__


def request(role: str, identity: Identity | None) -> wire.HelloRequest:
    """The first message of a client. identity: None if it only asks for the limits."""
    message = None if identity is None else identity.message
    return wire.HelloRequest(protocol=PROTOCOL, version=version(), role=role, identity=message)


def refusal(request: wire.HelloRequest, role: str, identity: Identity) -> str:
    """Why a host of this role with this model cannot serve the client; empty: it can. Raises ProtocolError."""
    if request.protocol != PROTOCOL:
        return (
            f"the host uses version {PROTOCOL} of the protocol (duo {version()}) and this duo, "
            f"{printable(request.version)}, version {request.protocol}; install the same duo on both machines"
        )
    if request.role != role:
        return f"the host is a {role} host, but the client needs a {printable(request.role)} host; start the other kind"
    if not request.HasField("identity"):
        return ""
    # The host knows the texts of one side only, so it only says that something differs. The client finds out what.
    client_identity = Identity.from_message(request.identity)
    return mismatch(identity, client_identity) if role == "verify" else mismatch(client_identity, identity)


def check_reply(reply: wire.HelloReply, role: str, host: str) -> str:
    """Why the client cannot use the host, before the vocabularies are compared; empty: it can."""
    if reply.protocol != PROTOCOL:
        return (
            f"{host} uses version {reply.protocol} of the protocol (duo {printable(reply.version)}) and this duo, "
            f"{version()}, version {PROTOCOL}; install the same duo on both machines"
        )
    if reply.role != role:
        return f"{host} is a {printable(reply.role)} host, but a {role} host is needed; start one with duo {role}-host"
    return ""
