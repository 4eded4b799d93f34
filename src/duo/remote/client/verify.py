"""The client of a Duo whose target is on another machine."""

from __future__ import annotations

import time
from typing import Any

import grpc

from duo import _core
from duo.errors import ContextFullError, DuoError, PeerLostError
from duo.remote.client.client import HostClient
from duo.remote.client.connection import ClientSettings, HostError, HostSession, LocalModel
from duo.remote.client.exchange import SLICE_US, Exchange, code_of, host_error
from duo.remote.window import Window
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import N_BATCH_MAX, N_SIZE_SLACK, get_chunks, get_figures, get_verdicts, put_nodes
from duo.remote.wire.codec_begin import put_begin

IDLE_US = 100_000
FINAL = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED)


class _Text:
    """Carries messages between a stream and the link: verdicts and text in, nodes out."""

    def __init__(self, link: _core.TargetLink, n_vocab: int) -> None:
        self._link, self._n_vocab = link, n_vocab
        self._left: list[Any] = []
        self.ended = False  # the last piece of text has arrived
        self.n_tokens = 0
        self._rtt_us = 0
        self._window = Window()

    def take(self) -> wire.ToVerify | None:
        if self.ended:
            time.sleep(SLICE_US / 1e6)  # the host closes the stream
            return None
        if self._link.cancelled:
            return wire.ToVerify(cancel=True)
        nodes = self._left
        if not nodes and self._window.room(SLICE_US / 1e6):
            nodes = self._link.take(SLICE_US)
            self._window.sent(len(nodes))
        if not nodes and not self._rtt_us:
            return None
        self._left = nodes[N_BATCH_MAX:]
        message = wire.ToVerify(rtt_us=self._rtt_us)
        self._rtt_us = 0
        put_nodes(message, nodes[:N_BATCH_MAX])
        return message

    def rtt(self, us: float) -> None:
        self._rtt_us = min(int(us), 2**31 - 1)

    def give(self, message: wire.FromVerify) -> None:
        verdicts, chunks = get_verdicts(message, self._n_vocab), get_chunks(message, self._n_vocab)
        if self.ended:
            return
        if message.n_seen:
            self._window.seen(message.n_seen)
        if message.figures:
            self._link.add_stats(get_figures(message))
        if not (verdicts or chunks):
            return
        self.n_tokens += len(chunks)
        end = next((i for i, c in enumerate(chunks) if c[0] == "end"), None)
        if end is not None and chunks[end][3] == "error":
            # The error is the host's own sentence.
            self._link.give(verdicts, chunks[:end])
            why = f"the verify host failed: {message.error[:500] or 'it does not say why'}"
            self._link.fail(why, message.error_code)
        else:
            self._link.give(verdicts, chunks)
        self.ended = end is not None  # set last: the core may have refused the end

    def is_last(self, message: wire.ToVerify) -> bool:
        return message.cancel

    def empty(self) -> wire.ToVerify:
        return wire.ToVerify()


class VerifyClient(HostClient):
    """If the host is lost, the text waits for some time and then continues from the tokens that have arrived."""

    def __init__(self, settings: ClientSettings, link: _core.TargetLink, own: LocalModel) -> None:
        super().__init__(settings, own)
        self._link = link
        # The vocabularies may differ in size, so the host may send tokens that the draft does not have.
        self._n_vocab = own.vocabulary.n_tokens + N_SIZE_SLACK

    def _step(self) -> None:
        if self._link.closed:
            self._stop.set()
            return
        if not self._first.is_set():
            self._connect()
        begin = self._link.wait_begin(IDLE_US)
        if begin is not None:
            self._write(begin)

    def _may_wait(self) -> bool:
        return not (self._link.closed or self._link.cancelled)

    def _closed(self) -> bool:
        return self._link.closed

    def _give_up(self, why: str) -> None:
        self._link.fail(why, PeerLostError.code)

    def _write(self, begin: _core.Begin) -> None:
        """Generates one text, over as many connections as necessary."""
        since: float | None = None  # since when no tokens have arrived
        stale = False  # `begin` was already used for a stream
        model = ""  # the host's model when the text started
        while not (self._stop.is_set() or self._link.closed):
            if self._link.cancelled:
                self._link.stopped()
                return
            session = self._connect()
            if session is not None:
                if stale and session.model != model:
                    self._link.fail(
                        f"{self.settings.name} came back with another model ({session.model}, not {model}); the text "
                        "so far is kept",
                        PeerLostError.code,
                    )
                    return
                model = session.model
                begin = self._link.restart() if stale else begin
                ended, wrote, why = self._stream(session, begin)
                if ended:
                    return
                stale, since = True, None if wrote else since
                if wrote:
                    self._was_useful()
            else:
                with self._lock:
                    why = self._trouble or HostError(f"{self.settings.name} cannot be reached")
            if self._stop.is_set() or self._link.closed or self._link.cancelled:
                continue
            since = since or time.monotonic()
            if why.hopeless or time.monotonic() - since > self.settings.patience_s:
                self._link.fail(self._sentence(why), why.text_code)
                return
            self._pause()

    def _sentence(self, why: HostError) -> str:
        if why.hopeless:
            return str(why)
        return f"{why}, and has not come back for {self.settings.patience_s:g} s; the text so far is kept"

    def _stream(self, session: HostSession, begin: _core.Begin) -> tuple[bool, bool, HostError]:
        """(the text has ended, tokens have arrived, why the stream ended)."""
        text = _Text(self._link, self._n_vocab)
        try:
            first = wire.ToVerify(begin=put_begin(begin, instance=session.instance, session=session.key))
            if first.ByteSize() > session.n_message:
                raise ContextFullError(f"{self.settings.name} cannot accept a prompt of {len(begin.prompt)} tokens")
        except DuoError as e:
            return False, False, HostError(str(e), hopeless=True, text_code=e.code)
        exchange = Exchange(session, session.method("Verify"), wire.FromVerify, text, self.figures)
        given_up = [0.0]

        def watch() -> bool:
            if self._link.cancelled and not text.ended:
                # Tells the host, so that its seat becomes free; the caller does not wait for this.
                given_up[0] = given_up[0] or time.monotonic()
                return time.monotonic() - given_up[0] < 1.0
            return not (self._stop.is_set() or self._link.closed)

        exchange.run(first, watch)
        if text.ended:
            return True, True, HostError("")
        if self._stop.is_set() or self._link.closed or self._link.cancelled:
            return False, False, HostError("")
        error, code = exchange.error or HostError("it ended the text", named=False), code_of(exchange.error)
        why = host_error(error, session)
        why = HostError(self._named(why), hopeless=why.hopeless or code in FINAL, text_code=why.text_code)
        if code != grpc.StatusCode.RESOURCE_EXHAUSTED:
            self.figures.lost()
            self._drop()
        self._warn(why)
        return False, text.n_tokens > 0, why
