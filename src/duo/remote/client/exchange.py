"""One text's stream as the client sees it: messages both ways, pings, and why it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from duo.errors import DuoError
from duo.remote.client.connection import HostError, Session
from duo.remote.figures import NetworkFigures
from duo.remote.wire.methods import parse

PING_S = 1.0
LOST_S = 3.5  # without a word, where every ping is answered at once
SLICE_US = 20_000
WATCH_S = 0.1


class Carrier(Protocol):
    """Where messages come from and go to."""

    def take(self) -> Any | None:
        """The next message to the host; None: nothing for a moment."""

    def give(self, message: Any) -> None:
        """One from the host. Raises DuoError for nonsense."""

    def rtt(self, us: float) -> None:
        """The round trip, as it was measured up to now."""

    def is_last(self, message: Any) -> bool:
        """Nothing follows this message to the host."""

    def empty(self) -> Any:
        """A message to the host that says nothing."""


class Exchange:
    """gRPC's thread sends, a second one receives, and the caller of `run` watches over both."""

    def __init__(
        self,
        session: Session,
        method: Callable[..., Any],
        answer: type[Any],
        carrier: Carrier,
        figures: NetworkFigures,
    ) -> None:
        self._session, self._method, self._answer = session, method, answer
        self._carrier, self._figures = carrier, figures
        self._sending = threading.Lock()  # held while the carrier is asked
        self._closed = False  # under _sending: the carrier is not asked any more
        self._over = threading.Event()
        self._heard = time.monotonic()
        self._giving = False
        self._pinged = 0.0  # the first message has a ping with it
        self._ping = 0  # under way; 0: none
        self.said_last = False
        self.error: DuoError | None = None

    def run(self, first: Any, watch: Callable[[], bool]) -> None:
        """Returns when the stream has ended; `error` says why, None: as it should. watch: False ends it early."""
        call = self._method(self._requests(first), metadata=self._session.metadata)
        receiver = threading.Thread(target=self._receive, args=(call,), name="duo-receive", daemon=True)
        self._heard = time.monotonic()
        receiver.start()
        try:
            while not self._over.wait(WATCH_S):
                if not watch():
                    break
                if time.monotonic() - self._heard > LOST_S and not self._giving:
                    self.error = HostError("it does not answer")
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
                except DuoError:  # the engine is being closed
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
                self._giving = True  # a reader that is in no hurry is not the host's fault
                self._carrier.give(message)
                self._heard, self._giving = time.monotonic(), False
        except grpc.RpcError as e:
            self.error = self.error or EndedError(e)
        except DuoError as e:  # a ProtocolError, or what the core says of its order
            self.error = HostError(f"it sends what no duo host sends: {e}", hopeless=True)
        finally:
            self._over.set()


class EndedError(DuoError):
    """gRPC's reason, put into words when somebody asks."""

    def __init__(self, e: grpc.RpcError) -> None:
        super().__init__(str(e.details()))
        self.rpc_error = e


def code_of(error: DuoError | None) -> grpc.StatusCode | None:
    """gRPC's code, where the stream ended with one."""
    return error.rpc_error.code() if isinstance(error, EndedError) else None


def in_words(error: DuoError, session: Session) -> HostError:
    """Why a stream ended."""
    if isinstance(error, EndedError):
        return session.error(error.rpc_error)
    return error if isinstance(error, HostError) else HostError(str(error))
