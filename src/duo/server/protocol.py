"""uvicorn's HTTP protocol, with time limits: a client that sends its head slowly, or does not read, is disconnected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from duo.server.errors import ApiError
from duo.server.json_text import dumped


def _answer(status: int, phrase: str, message: str) -> bytes:
    """To a request that never became one, in the shape of all errors."""
    body = dumped(ApiError(status, message).body)
    head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n%s" % (len(body), body)


NO_REQUEST = _answer(400, "Bad Request", "this is no HTTP request, or its head is too large")
TOO_SLOW = _answer(408, "Request Timeout", "the head of the request did not come in time (--header-timeout)")


def is_ambiguous(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a proxy may see another end of the request than this server does (RFC 9112 6.3). Names in lower case."""
    return {k for k, _ in headers} >= {b"content-length", b"transfer-encoding"}


class StrictConnection(h11.Connection):
    """Refuses what a proxy may read in another way, and hide a request in: lines of a head that end without CR, and
    fields behind a body (RFC 9112 2.2 and 7.1.2)."""

    _has_new_line = False

    def receive_data(self, data: bytes) -> None:
        self._has_new_line |= b"\n" in data
        super().receive_data(data)

    def start_next_cycle(self) -> None:
        super().start_next_cycle()
        self._has_new_line = True  # of a head that came early

    def next_event(self) -> Any:
        """Raises h11.RemoteProtocolError."""
        if self._has_new_line and self.their_state is h11.IDLE:
            self._has_new_line = False
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if re.search(rb"(?<!\r)\n", head):
                raise h11.RemoteProtocolError("a line of the headers ends without CR")
        event = super().next_event()
        if isinstance(event, h11.EndOfMessage) and list(event.headers):
            raise h11.RemoteProtocolError("the request has header fields after its body")
        return event


def protocol_with(header_timeout_s: float, write_timeout_s: float, on_slow: Callable[[], None]) -> type[H11Protocol]:
    """The class that uvicorn makes one object of for each connection. on_slow: called when a head was too slow."""

    class Timed(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
            super().__init__(config, *args, **kwargs)
            size = config.h11_max_incomplete_event_size
            self.conn = StrictConnection(h11.SERVER, *([] if size is None else [size]))

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(write_timeout_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._go_on()

        def _go_on(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start()

        def _start(self) -> None:
            self._timer = self.loop.call_later(header_timeout_s, self._expire)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        @property
        def _has_request(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        @property
        def _has_rest(self) -> bool:
            """Whether a body still comes whose request has its answer: it was refused by its head."""
            return not self._has_request and self.conn.their_state is h11.SEND_BODY

        def data_received(self, data: bytes) -> None:
            had_rest = self._has_rest
            super().data_received(data)
            if self._has_request:
                self._stop()
            elif had_rest and not self._has_rest:
                self._stop()
                self._wait_for_next()
            elif self._timer is None:  # the next request on this connection has begun
                self._start()

        def _wait_for_next(self) -> None:
            if self.conn.trailing_data[0]:
                self._start()
            else:  # uvicorn has stopped its timer, because data came
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

        def send_400_response(self, msg: str) -> None:
            self.transport.write(NO_REQUEST)
            self.transport.close()

        def on_response_complete(self) -> None:
            if is_ambiguous(self.headers):
                self.transport.close()  # what follows may be the rest of its body
            super().on_response_complete()
            self._stop()
            if self._has_rest:
                self._start()

        def _expire(self) -> None:
            self._timer = None
            if self._has_request or self.transport.is_closing():
                return
            if not self._has_rest:
                on_slow()
                self.transport.write(TOO_SLOW)
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> Any:
            self._stop()
            self._go_on()
            self._unset_keepalive_if_required()  # it would hold the last request until it is due
            return super().connection_lost(exc)

    return Timed
