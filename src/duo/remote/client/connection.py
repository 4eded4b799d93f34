"""A client's connection to its host, starting with the handshake."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from duo.errors import BusyError, PeerLostError, error_class
from duo.remote.address import HostAddress
from duo.remote.client.child import HostChild
from duo.remote.client.diagnosis import why_unreachable
from duo.remote.security import ClientSecurity
from duo.remote.wire import hello
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import ProtocolError, in_range, printable
from duo.remote.wire.codec_begin import N_KEY
from duo.remote.wire.identity import CoreVocabulary, Identity, mismatch, texts_of
from duo.remote.wire.methods import ERROR_KEY, M, method_of, parse

N_MESSAGE_MAX = 256 * 1024  # bytes of one message from a host
HELLO_S = 5.0
SLICE_S = 0.05

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", N_MESSAGE_MAX),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new session makes a new connection, without the back-off of the old one
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class HostError(PeerLostError):
    """A host cannot be used now. hopeless: trying again cannot help until somebody changes something.

    named: the message names the host; otherwise it is the reason only ("it does not answer"). text_code: the code of
    the error with which a text ends because of this.
    """

    def __init__(
        self, message: str, *, hopeless: bool = False, named: bool = True, text_code: str = PeerLostError.code
    ) -> None:
        super().__init__(message)
        self.hopeless, self.named, self.text_code = hopeless, named, text_code


@dataclass(frozen=True)
class ClientSettings:
    """The address of the host, its security, and how long it may be gone."""

    address: HostAddress
    security: ClientSecurity = field(default_factory=ClientSecurity)
    role: str = "draft"
    required: bool = False  # loading fails if it cannot be reached
    patience_s: float = 30.0  # verify: how long a text waits for a lost host
    child: HostChild | None = None  # the host is this child process

    @property
    def name(self) -> str:
        return f"the {self.role} host {self.address}" if self.child is None else self.child.name

    @property
    def where(self) -> str:
        """A short name for the place of the host's model."""
        return str(self.address) if self.child is None else self.child.name


class CallWithdrawn(HostError):  # noqa: N818
    """Nobody waits for the answer any more; no failure."""


class Calls:
    """The call that a session waits for, so that closing does not wait. off: returns whether nobody waits."""

    def __init__(self, off: Callable[[], bool] = lambda: False) -> None:
        self._lock = threading.Lock()
        self._call: Any = None
        self._off = off
        self._closed = False

    @property
    def off(self) -> bool:
        return self._closed or self._off()

    def wait_for(self, call: Any) -> bytes:
        """Its result. Raises grpc.RpcError."""
        with self._lock:
            self._call = call
        try:
            while not self.off:
                with suppress(grpc.FutureTimeoutError):
                    data: bytes = call.result(SLICE_S)
                    return data
            call.cancel()
        except grpc.FutureCancelledError:
            pass
        raise CallWithdrawn("the call was withdrawn", named=False)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._call is not None:
                self._call.cancel()


class LocalModel:
    """The model on this machine: its name and vocabulary."""

    def __init__(self, name: str, vocabulary: CoreVocabulary) -> None:
        self.vocabulary = vocabulary
        self.identity = Identity.of(name, vocabulary)


class HostSession:
    """An open channel to a host that fits. Raises HostError.

    own: the model on this machine; None: the session only asks for the limits of the host. round_trip_us: measured on
    the open connection, so that the figure exists before the first text; 0 without an own model.
    """

    def __init__(
        self, settings: ClientSettings, own: LocalModel | None, key: bytes, calls: Calls | None = None
    ) -> None:
        self._settings, self.key, self._calls = settings, key, calls or Calls()
        target, credentials = settings.address.target, settings.security.credentials()
        self.channel: Any = (
            grpc.insecure_channel(target, OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, OPTIONS)
        )
        try:
            request = hello.request(settings.role, None if own is None else own.identity)
            reply = self._ask("Hello", request, wire.HelloReply)
            self._check(reply, own)
            self.round_trip_us = 0.0 if own is None else self._round_trip_us()
        except ProtocolError as e:
            self.close()
            raise HostError(f"{settings.name} does not behave like a duo host ({e})", hopeless=True) from None
        except BaseException:
            self.close()
            raise

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return self._settings.security.metadata

    def method(self, name: str) -> Any:
        """A method that opens a stream."""
        return method_of(self.channel, name)

    def _ask(self, name: str, request: Any, kind: type[M]) -> M:
        try:
            call = method_of(self.channel, name).future(request, timeout=HELLO_S, metadata=self.metadata)
            data = self._calls.wait_for(call)
        except grpc.RpcError as e:
            raise self.error(e) from None
        return parse(kind, data)

    def _round_trip_us(self) -> float:
        """The round trip of an empty request, in microseconds. The handshake took longer: it opened the connection, and
        compared vocabularies."""
        asked_ns = time.monotonic_ns()
        self._ask("Tokens", wire.TokensRequest(), wire.TokensReply)
        return (time.monotonic_ns() - asked_ns) / 1e3

    def error(self, e: grpc.RpcError) -> HostError:
        """A gRPC error as a sentence."""
        s, code = self._settings, e.code()
        details = printable(e.details() or "")
        if code == grpc.StatusCode.UNAVAILABLE and not self._calls.off:
            why, hopeless = self._diagnosis()
            return HostError(f"{s.name} cannot be reached ({why})", hopeless=hopeless)
        if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            return HostError(f"{s.name} does not answer")
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return HostError(f"{s.name} cannot take another text ({details})", text_code=BusyError.code)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return HostError(f"{s.name} is not a duo host of this kind ({details})", hopeless=True)
        hopeless = code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT)
        metadata: Any = e.trailing_metadata() or ()
        code_sent = next((str(v) for k, v in metadata if k == ERROR_KEY), PeerLostError.code)
        return HostError(f"{s.name} refused ({details})", hopeless=hopeless, text_code=error_class(code_sent).code)

    def _diagnosis(self) -> tuple[str, bool]:
        """why_unreachable in its own thread, because it takes seconds; stops waiting if nobody needs the result."""
        answers: list[tuple[str, bool]] = []
        s = self._settings
        asking = threading.Thread(target=lambda: answers.append(why_unreachable(s.address, s.security)), daemon=True)
        asking.start()
        while asking.is_alive() and not self._calls.off:
            asking.join(SLICE_S)
        return answers[0] if answers else ("it does not answer", False)

    def _check(self, reply: wire.HelloReply, own: LocalModel | None) -> None:
        s = self._settings
        if why := hello.check_reply(reply, s.role, s.name):
            raise HostError(why, hopeless=True)
        host_identity = Identity.from_message(reply.identity)
        self.model = host_identity.model
        why = ("" if own is None else self._mismatch(host_identity, own)) or printable(reply.refusal)
        if why:
            raise HostError(f"{s.name} cannot be used: {why}", hopeless=True)
        self.n_ctx = in_range(reply.limits.n_ctx, 1, 2**31 - 1, "the host's context")
        self.n_message = in_range(reply.limits.n_message, 1024, 2**31 - 1, "the host's limit of a message")
        if len(reply.instance) != N_KEY:
            raise ProtocolError("its answer has no key")
        self.instance = reply.instance

    def _mismatch(self, host_identity: Identity, own: LocalModel) -> str:
        if self._settings.role == "verify":
            return mismatch(host_identity, own.identity, self._texts, texts_of(own.vocabulary))
        return mismatch(own.identity, host_identity, texts_of(own.vocabulary), self._texts)

    def _texts(self, first: int, n: int) -> list[bytes]:
        return list(self._ask("Tokens", wire.TokensRequest(first=first, n=n), wire.TokensReply).texts)

    def close(self) -> None:
        self.channel.close()


def new_key() -> bytes:
    """A client's name for itself, which nobody else can guess."""
    return secrets.token_bytes(N_KEY)
