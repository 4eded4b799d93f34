"""From the options of a Duo to its connections to its host."""

from __future__ import annotations

from pathlib import Path

from duo import _core
from duo.errors import BadValueError, PeerLostError
from duo.options.engine import EngineOptions
from duo.remote.address import HostAddress
from duo.remote.client.child import HostChild
from duo.remote.client.clients import Clients
from duo.remote.client.connection import ClientSettings, HostError, HostSession, LocalModel, new_key
from duo.remote.client.draft import DraftClient
from duo.remote.client.verify import VerifyClient
from duo.remote.security import ClientSecurity, read_token

# How long loading waits for the host. A draft host that answers later joins later.
WAIT_DRAFT_S, WAIT_REQUIRED_S = 1.5, 15.0


def settings_of(o: EngineOptions, child: HostChild | None = None) -> ClientSettings:
    """child: the own child process at the address of the host. Raises BadValueError."""
    role = "draft" if o["draft_host"] is not None else "verify"
    host = o["draft_host"] if role == "draft" else o["verify_host"]
    assert host is not None
    address = HostAddress.of(host, option=f"{role}_host (--{role}-host)")
    token = None if o["token_file"] is None else read_token(o["token_file"])
    security = ClientSecurity(ca=o["host_ca"], cert=o["host_cert"], key=o["host_key"], token=token)
    required = role == "verify" or o["require_draft"]
    return ClientSettings(address, security, role, required, o["host_patience"], child)


def context_of(settings: ClientSettings) -> int:
    """Tokens in the context of a verify host; asked before any model is loaded. Raises PeerLostError."""
    if settings.child is not None:
        settings.child.wait_started(required=True)
    try:
        session = HostSession(settings, None, new_key())
    except HostError as e:
        raise PeerLostError(str(e) if e.hopeless else f"{e}; start it, or give another address") from None
    session.close()
    return session.n_ctx


def attach(settings: ClientSettings, engine: _core.Engine) -> Clients:
    """Connects the open ends of an engine to the host. Raises PeerLostError: it does not fit, or is required and
    missing."""
    local = engine.target if settings.role == "draft" else engine.draft
    if local is None:
        raise BadValueError("there is no model on this machine; give one")
    if settings.child is not None:
        settings.child.wait_started(required=settings.required)
    own = LocalModel(Path(local.path).name, local.vocabulary)
    clients = Clients(
        [DraftClient(settings, link, own) for link in engine.draft_links]
        or [VerifyClient(settings, link, own) for link in engine.target_links]
    )
    clients.start(WAIT_REQUIRED_S if settings.required else WAIT_DRAFT_S)
    return clients
