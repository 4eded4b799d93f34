"""The hello: both ends say who they are, and one that cannot work with the other says why."""

from __future__ import annotations

from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import printable
from duo.remote.wire.identity import Identity, mismatch

PROTOCOL = 1


def version() -> str:
    """duo's own."""
    from duo import __version__

    return __version__


def request(role: str, identity: Identity | None) -> wire.HelloRequest:
    """identity None: who only wants to know the limits."""
    message = None if identity is None else identity.message
    return wire.HelloRequest(protocol=PROTOCOL, version=version(), role=role, identity=message)


def refusal(asked: wire.HelloRequest, role: str, identity: Identity) -> str:
    """Why a host of this role with this model cannot serve who asks; empty: it can. Raises ProtocolError."""
    if asked.protocol != PROTOCOL:
        return (
            f"the host speaks version {PROTOCOL} of the protocol (duo {version()}) and this duo, "
            f"{printable(asked.version)}, version {asked.protocol}; install the same duo on both machines"
        )
    if asked.role != role:
        return f"the host is a {role} host and was asked for a {printable(asked.role)} host; start the other kind"
    if not asked.HasField("identity"):
        return ""
    # The host has the texts of one side only: it says that something differs, the client asks for them and says what.
    theirs = Identity.from_message(asked.identity)
    return mismatch(identity, theirs) if role == "verify" else mismatch(theirs, identity)


def check_reply(reply: wire.HelloReply, role: str, host: str) -> str:
    """What the client finds wrong with the answer, before it looks at the vocabulary; empty: nothing."""
    if reply.protocol != PROTOCOL:
        return (
            f"{host} speaks version {reply.protocol} of the protocol (duo {printable(reply.version)}) and this duo, "
            f"{version()}, version {PROTOCOL}; install the same duo on both machines"
        )
    if reply.role != role:
        return f"{host} is a {printable(reply.role)} host; a {role} host is wanted: duo {role}-host"
    return ""
