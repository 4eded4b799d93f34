"""The client of a Duo whose draft is on another machine."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc

from duo import _core
from duo.errors import DuoError
from duo.remote.client.client import HostClient
from duo.remote.client.connection import ClientSettings, HostError, HostSession, LocalModel
from duo.remote.client.exchange import SLICE_US, Exchange, code_of, host_error
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import N_BATCH_MAX, get_nodes, put_verdicts
from duo.remote.wire.codec_begin import put_begin

IDLE_US = 100_000
SILENT_S = 5.0


class _Nodes:
    """Carries messages between a stream and the link: nodes in, verdicts out."""

    def __init__(self, link: _core.DraftLink, n_vocab: int, lock: threading.Lock) -> None:
        self._link, self._n_vocab, self._lock = link, n_vocab, lock
        self._left: list[Any] = []
        self._n_seen = self._n_acknowledged = 0  # nodes
        self._guessed = False  # the draft has read its prompt
        self._sent_at = 0.0  # when the first unanswered verdict was sent; 0: none is unanswered

    @property
    def any(self) -> bool:
        """Some nodes have arrived."""
        return self._n_seen > 0

    def take(self) -> wire.ToDraft | None:
        verdicts = self._left or self._link.take(SLICE_US)
        n_seen = self._n_seen
        if not verdicts and n_seen == self._n_acknowledged:
            return None
        self._left = verdicts[N_BATCH_MAX:]
        message = wire.ToDraft(n_seen=n_seen if n_seen != self._n_acknowledged else 0)
        self._n_acknowledged = n_seen
        put_verdicts(message, verdicts[:N_BATCH_MAX])
        if verdicts and self._guessed and not self._sent_at:
            self._sent_at = time.monotonic()
        return message

    @property
    def silent_s(self) -> float:
        """How long verdicts have been unanswered. A draft that makes no guesses still names the tokens of the text."""
        sent_at = self._sent_at
        return time.monotonic() - sent_at if sent_at else 0.0

    def give(self, message: wire.FromDraft) -> None:
        nodes = get_nodes(message, self._n_vocab)
        self._n_seen += len(message.nodes)
        if nodes:
            self._sent_at = 0.0
            # The first node only names the root, before the prompt is read.
            self._guessed = self._guessed or any(kind == "node" and guess for kind, guess, *_ in nodes)
            with self._lock:
                self._link.give(nodes)

    def rtt(self, us: float) -> None:
        self._link.rtt(int(us))

    def is_last(self, message: wire.ToDraft) -> bool:
        return bool(message.verdicts) and message.verdicts[-1].kind == wire.Verdict.END

    def empty(self) -> wire.ToDraft:
        return wire.ToDraft()


class DraftClient(HostClient):
    """While the host is gone, the link knows it and texts go on without the draft."""

    def __init__(self, settings: ClientSettings, link: _core.DraftLink, own: LocalModel) -> None:
        super().__init__(settings, own)
        self._link = link
        self._link_lock = threading.Lock()
        self._ready = False

    def _step(self) -> None:
        if self._link.closed:
            self._stop.set()
            return
        session = self._connect()
        if session is None:
            self._pause()
            return
        if not self._ready:
            with self._link_lock:
                self._link.ready()
            self._ready = True
        begin = self._link.wait_begin(IDLE_US)
        if begin is not None:
            self._text(session, begin)

    def _closed(self) -> bool:
        return self._link.closed

    def _give_up(self, why: str) -> None:
        with self._link_lock:
            self._link.lost()
        self._ready = False

    def _text(self, session: HostSession, begin: _core.Begin) -> None:
        nodes = _Nodes(self._link, self._own.vocabulary.n_tokens, self._link_lock)
        exchange = Exchange(session, session.method("Draft"), wire.FromDraft, nodes, self.figures)
        try:
            first = wire.ToDraft(begin=put_begin(begin, instance=session.instance, session=session.key))
            if first.ByteSize() > session.n_message:
                raise HostError(f"{self.settings.name} cannot accept a prompt of {len(begin.prompt)} tokens")
        except DuoError as e:
            self._without(begin, HostError(str(e)))
            return

        def watch() -> bool:
            if nodes.silent_s > SILENT_S:  # the host answers, but its model hangs, perhaps on an RPC server
                self._remark(HostError(f"{self.settings.name} has made no guess for {SILENT_S:g} s"))
            return not (self._stop.is_set() or self._link.closed)

        exchange.run(first, watch)
        if nodes.any:
            self._was_useful()
        if self._stop.is_set() or self._link.closed:
            return
        error, code = exchange.error, code_of(exchange.error)
        if error is None and exchange.said_last:
            return
        if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
            assert error is not None
            self._without(begin, host_error(error, session))
            return
        ended = HostError("it ended the text", named=False)
        self._lost(ended if error is None else error, session, code, useful=nodes.any)

    def _without(self, begin: _core.Begin, why: HostError) -> None:
        """The host cannot help with this text; it may help with the next one."""
        self._warn(why)
        with self._link_lock:
            self._link.give([("failed", False, begin.id, 0, -1, 0.0, 0, 0, 0.0)])

    def _lost(self, error: DuoError, session: HostSession, code: grpc.StatusCode | None, *, useful: bool) -> None:
        # This comes first: the text must not wait for a host that is gone.
        self._give_up("")
        self.figures.lost()
        why = host_error(error, session)
        if code != grpc.StatusCode.ABORTED:  # ABORTED: the host is there, but was restarted
            self._warn(HostError(self._named(why), hopeless=why.hopeless))
        self._drop()
        # Without a pause, a host that accepts the handshake and then fails would be asked again and again.
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED or why.hopeless or not useful:
            self._pause()
