"""One text at a host: passes messages between the stream and the seat, and ends the text."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Generic, TypeVar

import grpc

from duo import _core
from duo.errors import BusyError
from duo.remote.host.pump import QueuePump
from duo.remote.window import N_WINDOW, Window
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import (
    N_BATCH_MAX,
    ChunkTuple,
    NodeTuple,
    ProtocolError,
    VerdictTuple,
    get_nodes,
    get_verdicts,
    in_range,
    put_chunks,
    put_figures,
    put_nodes,
    put_verdicts,
)
from duo.remote.wire.methods import parse

WRITE_S = 1.0  # time limit for a message before the text starts or when it ends
TAKE_US = 20_000
END_US = 1_000_000
RATE = 4000  # messages a second that one text may send on average; a fast model needs a tenth of it

SeatT = TypeVar("SeatT")
Out = TypeVar("Out", wire.FromDraft, wire.FromVerify)
OutputT = TypeVar("OutputT")


class Idle(Exception):  # noqa: N818 - no error
    """The client sends nothing, or does not read."""


async def write_in_time(context: Any, message: Any) -> None:
    """Sends a message. Raises Idle: the client does not read."""
    writing = asyncio.ensure_future(context.write(message))
    if not (await asyncio.wait({writing}, timeout=WRITE_S))[0]:
        writing.cancel()
        raise Idle
    writing.result()


def batches(chunks: Sequence[ChunkTuple]) -> list[Sequence[ChunkTuple]]:
    """Splits chunks into parts of N_BATCH_MAX at most, but never between a token and its log-probabilities."""
    ends = [i for i, chunk in enumerate(chunks) if chunk[0] != "logprob" and i > 0] + [len(chunks)]
    out, first = [], 0
    for boundary, end in pairwise(ends):
        if end - first > N_BATCH_MAX:
            out.append(chunks[first:boundary])
            first = boundary
    return [*out, chunks[first:]]


class HostText(ABC, Generic[SeatT, OutputT, Out]):
    """Runs in the thread of the event loop, except for `take` of the pump."""

    incoming: type[Any]  # the class of the client's messages

    def __init__(self, context: Any, seat: SeatT, n_vocab: int, idle_s: float) -> None:
        self._context, self.seat, self._n_vocab, self._idle_s = context, seat, n_vocab, idle_s
        self._loop = asyncio.get_running_loop()
        self._since = self._heard = self._loop.time()
        self._writing_since = 0.0  # 0: nothing is being written
        self._n_messages = 0
        self._write_lock = asyncio.Lock()
        self._under_way: asyncio.Future[None] | None = None
        self.evicted = asyncio.Event()  # the same client has come back on another connection
        self.done = asyncio.Event()
        self.beginning: asyncio.Future[None]
        self.pump: QueuePump[OutputT] | None = None

    @abstractmethod
    def _take(self) -> OutputT | None: ...
    @abstractmethod
    async def _give(self, message: Any) -> bool:
        """Passes a message to the seat. Returns True for the last one."""

    @abstractmethod
    def _messages(self, output: OutputT) -> list[Out]: ...
    @staticmethod
    @abstractmethod
    def nothing() -> Out:
        """An empty message: the host is alive."""

    @abstractmethod
    def _is_last(self, output: OutputT) -> bool: ...
    @abstractmethod
    def end(self) -> None:
        """Ends the text; blocks for one step of the model at most."""

    async def run(self) -> None:
        """Passes messages until either side ends the text. Raises ProtocolError, DuoError, Idle."""
        pump = self.pump = QueuePump(self._take, "duo-seat")
        tasks = {asyncio.ensure_future(t) for t in (self._read(), self._write(pump), self.evicted.wait())}
        reads = True
        try:
            while True:
                done, _ = await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if done:
                    break
                now = self._loop.time()
                if now - self._heard > self._idle_s or 0 < self._writing_since < now - self._idle_s:
                    raise Idle
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._under_way is not None and not (await asyncio.wait({self._under_way}, timeout=WRITE_S))[0]:
                self._under_way.cancel()
                reads = False
            await pump.stop()
        if not reads:
            raise Idle
        await self._finish()

    async def _finish(self) -> None:
        """Sends what is left, after all other writers have stopped. Raises Idle."""

    async def _read(self) -> None:
        while True:
            data = await self._context.read()
            if data is grpc.aio.EOF:
                return
            message = parse(self.incoming, data)
            self._heard = self._loop.time()
            self._n_messages += 1
            if self._n_messages > RATE * (1 + self._heard - self._since):
                raise ProtocolError("too many messages")
            if message.HasField("begin"):
                raise ProtocolError("a text was started twice")
            if await self._give(message):
                return
            if message.ping:
                pong = self.nothing()
                pong.pong = message.ping
                await self._send(pong)

    async def _send(self, message: Out) -> None:
        async with self._write_lock:
            self._writing_since = self._loop.time()
            # Not cancelled with its caller: gRPC cannot end a stream whose write was cancelled.
            self._under_way = asyncio.ensure_future(self._context.write(message))
            await asyncio.shield(self._under_way)
            self._writing_since = 0.0

    async def _write(self, pump: QueuePump[OutputT]) -> None:
        while True:
            try:
                output = await pump.get()
            except BusyError:  # the client has not read for so long that something was lost
                raise Idle from None
            for message in self._messages(output):
                await self._send(message)
            if self._is_last(output):
                return


class DraftText(HostText[_core.DraftSeat, list[NodeTuple], wire.FromDraft]):
    """Verdicts in, nodes out."""

    incoming = wire.ToDraft

    def __init__(self, context: Any, seat: _core.DraftSeat, n_vocab: int, idle_s: float) -> None:
        super().__init__(context, seat, n_vocab, idle_s)
        self._window = Window()

    def _take(self) -> list[NodeTuple] | None:
        if not self._window.room(TAKE_US / 1e6):
            return None
        nodes = self.seat.take(TAKE_US)
        self._window.sent(len(nodes))
        return nodes or None

    async def _give(self, message: wire.ToDraft) -> bool:
        verdicts = get_verdicts(message, self._n_vocab)
        if message.n_seen:
            self._window.seen(message.n_seen)
        if verdicts:
            self.seat.give(verdicts)
        return any(kind == "end" for kind, *_ in verdicts)

    def _messages(self, output: list[NodeTuple]) -> list[wire.FromDraft]:
        out = []
        for i in range(0, len(output), N_BATCH_MAX):
            out.append(wire.FromDraft())
            put_nodes(out[-1], output[i : i + N_BATCH_MAX])
        return out

    @staticmethod
    def nothing() -> wire.FromDraft:
        return wire.FromDraft()

    def _is_last(self, output: list[NodeTuple]) -> bool:
        return False

    def end(self) -> None:
        while not self.seat.end(END_US):
            if self.seat.closed:
                return


class VerifyText(HostText[_core.VerifySeat, tuple[list[VerdictTuple], list[ChunkTuple]], wire.FromVerify]):
    """Nodes in, verdicts and text out."""

    incoming = wire.ToVerify

    def __init__(self, context: Any, seat: _core.VerifySeat, n_vocab: int, idle_s: float) -> None:
        super().__init__(context, seat, n_vocab, idle_s)
        self._giver = ThreadPoolExecutor(1, "duo-give")
        self._stopping = threading.Lock()  # a disconnect cancels _finish, but not its thread
        self._cancelled = False
        self._n_seen = self._n_acknowledged = 0  # nodes

    def _acknowledge(self, message: wire.FromVerify) -> wire.FromVerify:
        if self._n_seen != self._n_acknowledged:
            message.n_seen = self._n_acknowledged = self._n_seen
        return message

    def _take(self) -> tuple[list[VerdictTuple], list[ChunkTuple]] | None:
        verdicts, chunks = self.seat.take(TAKE_US)
        return (verdicts, chunks) if verdicts or chunks else None

    async def _give(self, message: wire.ToVerify) -> bool:
        nodes = get_nodes(message, self._n_vocab)
        self._n_seen += len(message.nodes)
        if nodes:
            # `give` waits if the target has no room. Then this client waits too, but no other client.
            await self._loop.run_in_executor(self._giver, self.seat.give, nodes)
        if self._n_seen - self._n_acknowledged > N_WINDOW // 4:
            await self._send(self._acknowledge(wire.FromVerify()))
        if message.rtt_us:
            self.seat.rtt(in_range(message.rtt_us, 0, 2**31 - 1, "the round trip"))
        self._cancelled = message.cancel
        return message.cancel

    def _messages(self, output: tuple[list[VerdictTuple], list[ChunkTuple]]) -> list[wire.FromVerify]:
        verdicts, chunks = output
        parts = batches(chunks)
        out = []
        for i in range(max(-(-len(verdicts) // N_BATCH_MAX), len(parts))):
            out.append(wire.FromVerify())
            put_verdicts(out[-1], verdicts[i * N_BATCH_MAX : (i + 1) * N_BATCH_MAX])
            put_chunks(out[-1], parts[i] if i < len(parts) else ())
        self._acknowledge(out[-1])
        if self._is_last(output):
            put_figures(out[-1], self.seat.stats())
            why, out[-1].error_code = self.seat.error
            out[-1].error = why[:1000]
        return out

    @staticmethod
    def nothing() -> wire.FromVerify:
        return wire.FromVerify()

    def _is_last(self, output: tuple[list[VerdictTuple], list[ChunkTuple]]) -> bool:
        return any(chunk[0] == "end" for chunk in output[1])

    async def _finish(self) -> None:
        if self._cancelled:
            await asyncio.to_thread(self.end)
            message = wire.FromVerify()
            put_figures(message, self.seat.stats())
            await write_in_time(self._context, message)

    def end(self) -> None:
        with self._stopping:
            # This comes first: it makes the target take nodes, and give() may be waiting for room.
            if self.seat.running:
                self.seat.cancel()
            self._giver.shutdown()
