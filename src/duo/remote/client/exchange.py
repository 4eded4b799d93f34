"""The client's side of the stream of one text: messages in both directions, pings, and why it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from duo.errors import DuoError, PeerLostError
from duo.remote.client.connection import HostError, HostSession
from duo.remote.figures import NetworkFigures
from duo.remote.wire.methods import parse

PING_S = 1.0
LOST_S = 3.5  # without a message; a host answers every ping at once
SLICE_US = 20_000
WATCH_S = 0.1


class Carrier(Protocol):
    """The source and destination of messages."""

    def take(self) -> Any | None:
        """The next message to the host; None: there is none yet."""

    def give(self, message: Any) -> None:
        """A message from the host. Raises DuoError: it is not valid."""

    def rtt(self, us: float) -> None:
        """The measured round trip in microseconds."""

    def is_last(self, message: Any) -> bool:
        """Whether this is the last message to the host."""

    def empty(self) -> Any:
        """An empty message to the host."""


class Exchange:
    """gRPC's thread sends, a second thread receives, and the caller of `run` watches both."""

    def __init__(
        self,
        session: HostSession,
        method: Callable[..., Any],
        answer: type[Any],
        carrier: Carrier,
        figures: NetworkFigures,
    ) -> None:
        self._session, self._method, self._answer = session, method, answer
        self._carrier, self._figures = carrier, figures
        self._sending = threading.Lock()  # held while the carrier is used
        self._closed = False  # under _sending: the carrier must not be used any more
        self._over = threading.Event()
        self._heard = time.monotonic()
        self._giving = False
        self._pinged = 0.0  # 0: the first message has a ping
        self._ping = 0  # the unanswered ping; 0: none
        self.said_last = False
        self.error: DuoError | None = None

    def run(self, first: Any, watch: Callable[[], bool]) -> None:
        """Returns when the stream has ended; `error` says why (None: normally). watch returns False to end it early."""
        call = self._method(self._requests(first), metadata=self._session.metadata)
        receiver = threading.Thread(target=self._receive, args=(call,), name="duo-receive", daemon=True)
        self._heard = time.monotonic()
        receiver.start()
        try:
            while not self._over.wait(WATCH_S):
                if not watch():
                    break
                if time.monotonic() - self._heard > LOST_S and not self._giving:
                    self.error = HostError("it does not answer", named=False)
                    break
        finally:
            call.cancel()
            with self._sending:
                self._closed = True
            receiver.join()

    def _requests(self, first: Any) -> Iterator[Any]:
        self._figures.sent(first.ByteSize())
        yield first
        while True:
            with self._sending:
                if self._closed:
                    return
                try:
                    message = self._carrier.take()
                except DuoError:  # the engine is closing
                    return
                now = time.monotonic()
                if now - self._pinged > PING_S:
                    message = self._carrier.empty() if message is None else message
                    message.ping = self._ping = time.monotonic_ns()
                    self._pinged = now
                if message is None:
                    continue
                last = self.said_last = self._carrier.is_last(message)
            self._figures.sent(message.ByteSize())
            yield message
            if last:
                return

    def _receive(self, call: Any) -> None:
        try:
            for data in call:
                self._heard = time.monotonic()
                self._figures.received(len(data))
                message = parse(self._answer, data)
                if message.pong and message.pong == self._ping:
                    self._figures.round_trip((time.monotonic_ns() - message.pong) / 1e3)
                    self._ping = 0
                    self._carrier.rtt(self._figures.round_trip_ms * 1e3)
                self._giving = True  # a slow reader is not the host's fault
                self._carrier.give(message)
                self._heard, self._giving = time.monotonic(), False
        except grpc.RpcError as e:
            self.error = self.error or EndedError(e)
        except DuoError as e:  # a ProtocolError, or the core rejects the order of messages
            self.error = HostError(f"it does not behave like a duo host: {e}", hopeless=True, named=False)
        finally:
            self._over.set()


class EndedError(PeerLostError):
    """gRPC's reason; `host_error` makes a sentence of it."""

    def __init__(self, e: grpc.RpcError) -> None:
        super().__init__(str(e.details()))
        self.rpc_error = e


def code_of(error: DuoError | None) -> grpc.StatusCode | None:
    """gRPC's code, if the stream ended with one."""
    return error.rpc_error.code() if isinstance(error, EndedError) else None


def host_error(error: DuoError, session: HostSession) -> HostError:
    """Why a stream ended, as a HostError."""
    if isinstance(error, EndedError):
        return session.error(error.rpc_error)
    return error if isinstance(error, HostError) else HostError(str(error), named=False)
