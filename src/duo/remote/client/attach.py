"""From a Duo's options to the client that keeps it in touch with its host."""

from __future__ import annotations

from pathlib import Path

from duo import _core
from duo.errors import DuoError
from duo.options.engine import EngineOptions
from duo.remote.address import Address
from duo.remote.client.child import Child
from duo.remote.client.client import Client
from duo.remote.client.connection import ClientSettings, HostError, Own, Session, new_key
from duo.remote.client.draft import DraftClient
from duo.remote.client.verify import VerifyClient
from duo.remote.security import ClientSecurity, read_token

# How long loading waits to see whether the host is there; a draft host that is slow to answer joins later.
WAIT_DRAFT_S, WAIT_REQUIRED_S = 1.5, 15.0


def settings_of(o: EngineOptions, child: Child | None = None) -> ClientSettings:
    """child: of this process's own, at the host's address. Raises DuoError."""
    role = "draft" if o["draft_host"] is not None else "verify"
    host = o["draft_host"] if role == "draft" else o["verify_host"]
    assert host is not None
    address = Address.of(host, option=f"{role}_host (--{role}-host)")
    token = None if o["token_file"] is None else read_token(o["token_file"])
    security = ClientSecurity(ca=o["host_ca"], cert=o["host_cert"], key=o["host_key"], token=token)
    required = role == "verify" or o["require_draft"]
    return ClientSettings(address, security, role, required, o["host_patience"], child)


def context_of(settings: ClientSettings) -> int:
    """Tokens that a verify host's context holds; asked before anything is loaded. Raises DuoError."""
    if settings.child is not None:
        settings.child.wait_started(required=True)
    try:
        session = Session(settings, None, new_key())
    except HostError as e:
        raise DuoError(str(e) if e.hopeless else f"{e}; start it, or give another address") from None
    session.close()
    return session.n_ctx


def attach(settings: ClientSettings, engine: _core.Engine) -> Client:
    """Connects an engine's open end to the host. Raises DuoError: the host does not fit, or is needed and not there."""
    client: Client
    here = engine.target if settings.role == "draft" else engine.draft
    if here is None:
        raise DuoError("there is no model on this side; give one")
    if settings.child is not None:
        settings.child.wait_started(required=settings.required)
    own = Own(Path(here.path).name, here.vocabulary)
    if engine.draft_link is not None:
        client = DraftClient(settings, engine.draft_link, own)
    else:
        assert engine.target_link is not None
        client = VerifyClient(settings, engine.target_link, own)
    client.start(WAIT_REQUIRED_S if settings.required else WAIT_DRAFT_S)
    return client
