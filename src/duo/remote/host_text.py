"""One text at a host: the stream's messages in, the seat's out, and everything that ends it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, Generic, TypeVar

import grpc

from duo import _core
from duo.errors import DuoError
from duo.remote import wire_pb2 as wire
from duo.remote.codec import (
    N_BATCH_MAX,
    ChunkTuple,
    NodeTuple,
    ProtocolError,
    VerdictTuple,
    get_nodes,
    get_verdicts,
    put_chunks,
    put_nodes,
    put_verdicts,
)
from duo.remote.pump import Pump

TAKE_US = 20_000
RATE = 4000  # messages a second that one text may send on average; a fast model needs a tenth of it

SeatT = TypeVar("SeatT")
Out = TypeVar("Out", wire.FromDraft, wire.FromVerify)
Made = TypeVar("Made")


class Idle(Exception):  # noqa: N818 - no error
    """The client has gone quiet, or does not read."""


class HostText(ABC, Generic[SeatT, Made, Out]):
    """Everything in the event loop's thread but the pump's `take`."""

    def __init__(self, context: Any, seat: SeatT, n_vocab: int, idle_s: float) -> None:
        self._context, self.seat, self._n_vocab, self._idle_s = context, seat, n_vocab, idle_s
        self._loop = asyncio.get_running_loop()
        self._since = self._heard = self._loop.time()
        self._writing_since = 0.0  # 0: no write is under way
        self._n_messages = 0
        self._write_lock = asyncio.Lock()
        self.failed = False  # the seat's model; the seat is of no use any more
        self.evicted = asyncio.Event()  # the same client has come back on another connection
        self.done = asyncio.Event()

    @abstractmethod
    def _take(self) -> Made | None: ...
    @abstractmethod
    async def _give(self, message: Any) -> bool:
        """Passes a message on to the seat. True: it was the last one."""

    @abstractmethod
    def _messages(self, made: Made) -> list[Out]: ...
    @staticmethod
    @abstractmethod
    def nothing() -> Out:
        """A message that says that the host is alive."""

    @abstractmethod
    def _is_last(self, made: Made) -> bool: ...

    async def run(self) -> None:
        """Carries messages until the text has ended at either side. Raises ProtocolError, DuoError, Idle."""
        pump = Pump(self._take, "duo-seat")
        tasks = {asyncio.ensure_future(t) for t in (self._read(), self._write(pump), self.evicted.wait())}
        try:
            while True:
                done, _ = await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if done:
                    return
                now = self._loop.time()
                if now - self._heard > self._idle_s or 0 < self._writing_since < now - self._idle_s:
                    raise Idle
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pump.stop()

    async def _read(self) -> None:
        while True:
            message = await self._context.read()
            if message is grpc.aio.EOF:
                return
            self._heard = self._loop.time()
            self._n_messages += 1
            if self._n_messages > RATE * (1 + self._heard - self._since):
                raise ProtocolError("too many messages")
            if message.HasField("begin"):
                raise ProtocolError("a text was begun twice")
            if await self._give(message):
                return
            if message.ping:
                pong = self.nothing()
                pong.pong = message.ping
                await self._send(pong)

    async def _send(self, message: Out) -> None:
        async with self._write_lock:
            self._writing_since = self._loop.time()
            await self._context.write(message)
            self._writing_since = 0.0

    async def _write(self, pump: Pump[Made]) -> None:
        while True:
            try:
                made = await pump.get()
            except DuoError:
                self.failed = True
                raise
            for message in self._messages(made):
                await self._send(message)
            if self._is_last(made):
                return


class DraftText(HostText[_core.DraftSeat, list[NodeTuple], wire.FromDraft]):
    """Verdicts in, nodes out."""

    def _take(self) -> list[NodeTuple] | None:
        return self.seat.take(TAKE_US) or None

    async def _give(self, message: wire.ToDraft) -> bool:
        verdicts = get_verdicts(message, self._n_vocab)
        if verdicts:
            self.seat.give(verdicts)
        return any(kind == "end" for kind, *_ in verdicts)

    def _messages(self, made: list[NodeTuple]) -> list[wire.FromDraft]:
        out = []
        for i in range(0, len(made), N_BATCH_MAX):
            out.append(wire.FromDraft())
            put_nodes(out[-1], made[i : i + N_BATCH_MAX])
        return out

    @staticmethod
    def nothing() -> wire.FromDraft:
        return wire.FromDraft()

    def _is_last(self, made: list[NodeTuple]) -> bool:
        return False

    def end(self) -> None:
        """Lets go of the text; blocks for a step of the model at most."""
        self.seat.end()


class VerifyText(HostText[_core.VerifySeat, tuple[list[VerdictTuple], list[ChunkTuple]], wire.FromVerify]):
    """Nodes in, verdicts and text out."""

    def _take(self) -> tuple[list[VerdictTuple], list[ChunkTuple]] | None:
        verdicts, chunks = self.seat.take(TAKE_US)
        return (verdicts, chunks) if verdicts or chunks else None

    async def _give(self, message: wire.ToVerify) -> bool:
        nodes = get_nodes(message, self._n_vocab)
        if nodes:
            self.seat.give(nodes)
        if message.cancel:
            await asyncio.to_thread(self.seat.cancel)
        return False

    def _messages(self, made: tuple[list[VerdictTuple], list[ChunkTuple]]) -> list[wire.FromVerify]:
        verdicts, chunks = made
        out = []
        for i in range(0, max(len(verdicts), len(chunks)), N_BATCH_MAX):
            out.append(wire.FromVerify())
            put_verdicts(out[-1], verdicts[i : i + N_BATCH_MAX])
            put_chunks(out[-1], chunks[i : i + N_BATCH_MAX])
        if self._is_last(made):
            out[-1].stats.update({k: v for k, v in self.seat.stats().items() if isinstance(v, int) and v >= 0})
            out[-1].error = self.seat.error[:1000]
        return out

    @staticmethod
    def nothing() -> wire.FromVerify:
        return wire.FromVerify()

    def _is_last(self, made: tuple[list[VerdictTuple], list[ChunkTuple]]) -> bool:
        return any(chunk[0] == "end" for chunk in made[1])

    def end(self) -> None:
        """As DraftText.end."""
        with suppress(DuoError):
            if self.seat.running:
                self.seat.cancel()
            while self.seat.running:
                self.seat.take(TAKE_US)
