"""The gRPC service of a host: handshake, tokens, and a stream for each text."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, NoReturn
from zlib import crc32

import grpc

from duo import _core
from duo.errors import DuoError
from duo.remote.host.seats import Seats
from duo.remote.host.text import DraftText, Idle, VerifyText, write_in_time
from duo.remote.security import TOKEN_KEY, same_token
from duo.remote.wire import hello
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import N_SIZE_SLACK, ProtocolError
from duo.remote.wire.codec_begin import N_KEY, check_keys, get_begin, n_message_most
from duo.remote.wire.identity import CoreVocabulary, Identity
from duo.remote.wire.methods import ERROR_KEY, parse
from duo.support.wording import plural

HANDSHAKE_S = 10.0  # from the start of a stream to its first message
IDLE_S = 15.0  # clients send a message every second
BUSY_WAIT_S = 1.0  # how long to wait for a seat whose text is just ending
CLOSE_S = 10.0  # how long to wait for texts when the host ends
N_UNBEGUN_MAX = 8  # streams of one address that have not sent their first message
N_TEXTS_BYTES = 128 * 1024
Code = grpc.StatusCode


class HostService:
    """role: "draft" or "verify". host: what serves the model."""

    def __init__(
        self,
        role: str,
        identity: Identity,
        vocabulary: CoreVocabulary,
        host: _core.DraftHost | _core.VerifyHost,
        *,
        token: bytes | None,
        idle_s: float = IDLE_S,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._role, self._identity, self._vocabulary = role, identity, vocabulary
        self._host = host
        self._seats: Seats[Any] = Seats(host.seats)
        self._n_ctx, self._token = host.n_ctx, token
        # The target may have a few more tokens than the draft. The draft stops reading at such a token.
        self._n_vocab = vocabulary.n_tokens + (N_SIZE_SLACK if role == "draft" else 0)
        self._idle_s, self._handshake_s = idle_s, handshake_s
        self._instance = secrets.token_bytes(N_KEY)
        self._tasks: set[asyncio.Future[None]] = set()
        self._texts: dict[bytes, DraftText | VerifyText] = {}  # by session
        self._unbegun: Counter[str] = Counter()  # streams, by address

    async def _admit(self, context: Any) -> None:
        if self._token is None:
            return
        tokens = [v for k, v in context.invocation_metadata() or () if k == TOKEN_KEY]
        if len(tokens) != 1:
            await context.abort(Code.UNAUTHENTICATED, "the host requires a token; give its file (--token-file)")
        if not same_token(self._token, tokens[0]):
            await context.abort(
                Code.UNAUTHENTICATED, "the token is not the host's token; give the same --token-file to both"
            )

    async def Hello(self, request: bytes, context: Any) -> wire.HelloReply:  # noqa: N802 - gRPC's name
        """The identity of this host, and whether the client fits."""
        await self._admit(context)
        reply = wire.HelloReply(
            protocol=hello.PROTOCOL,
            version=hello.version(),
            role=self._role,
            identity=self._identity.message,
            limits=wire.Limits(
                n_ctx=self._n_ctx, n_seats=self._seats.n, n_message=n_message_most(self._n_ctx)
            ),
            instance=self._instance,
        )  # fmt: skip
        try:
            # The hashes exist already; comparing those of a large vocabulary takes microseconds.
            reply.refusal = hello.refusal(parse(wire.HelloRequest, request), self._role, self._identity)
        except ProtocolError as e:
            await context.abort(Code.INVALID_ARGUMENT, str(e))
        return reply

    async def Tokens(self, data: bytes, context: Any) -> wire.TokensReply:  # noqa: N802
        """Texts of a range of tokens, as many as fit into a message."""
        await self._admit(context)
        try:
            request = parse(wire.TokensRequest, data)
        except ProtocolError as e:
            await context.abort(Code.INVALID_ARGUMENT, str(e))
        texts, n_bytes = [], 0
        for i in range(request.first, min(request.first + min(request.n, 1024), self._vocabulary.n_tokens)):
            texts.append(self._vocabulary.text(i)[:N_TEXTS_BYTES])
            n_bytes += len(texts[-1]) + 8
            if n_bytes > N_TEXTS_BYTES:
                break
        return wire.TokensReply(texts=texts)

    async def Draft(self, requests: AsyncIterator[bytes], context: Any) -> None:  # noqa: N802
        """One text of a client that has the target."""
        await self._stream("draft", context)

    async def Verify(self, requests: AsyncIterator[bytes], context: Any) -> None:  # noqa: N802
        """One text of a client that has the draft."""
        await self._stream("verify", context)

    async def _stream(self, role: str, context: Any) -> None:
        await self._admit(context)
        if role != self._role:
            await context.abort(Code.UNIMPLEMENTED, f"this is a {self._role} host")
        code, why = Code.INTERNAL, "the host failed"
        try:
            # Sent now: if the first write is cancelled, grpc.aio forgets that it sent the metadata and sends no status.
            await context.send_initial_metadata(())
            # Its own task: it cleans up even if the client or the server cancels the stream.
            await self._until_end(self._later(self._text(context)))
            return
        except ProtocolError as e:
            code, why = Code.INVALID_ARGUMENT, str(e)
        except DuoError as e:
            code, why = Code.FAILED_PRECONDITION, str(e)
            context.set_trailing_metadata(((ERROR_KEY, e.code),))
        except Idle:
            code, why = Code.DEADLINE_EXCEEDED, "the client sends nothing, or does not read"
        except MemoryError:
            code, why = Code.RESOURCE_EXHAUSTED, "the host has no memory for another text"
        except _Refused as e:
            code, why = e.code, str(e)
        await context.abort(code, why)

    async def _until_end(self, text: asyncio.Future[None]) -> None:
        try:
            await asyncio.shield(text)
        except asyncio.CancelledError:
            text.cancel()
            await asyncio.wait({text})
            raise

    async def close(self) -> None:
        """Call after the server has stopped: ends running texts, waits CLOSE_S at most, and ends the model's thread."""
        end = asyncio.get_running_loop().time() + CLOSE_S
        while self._tasks and asyncio.get_running_loop().time() < end:
            for text in self._texts.values():
                text.evicted.set()
            await asyncio.wait(set(self._tasks), timeout=1.0)
        await asyncio.to_thread(self._host.close)

    async def _first(self, context: Any) -> Any:
        """The first message or EOF. Raises Idle, _Refused."""
        peer: str = context.peer().rpartition(":")[0]  # without the port
        if self._unbegun[peer] >= N_UNBEGUN_MAX:
            _refuse(
                Code.RESOURCE_EXHAUSTED, f"{N_UNBEGUN_MAX} streams from this address have not started a text; try again"
            )
        self._unbegun[peer] += 1
        try:
            return await asyncio.wait_for(context.read(), self._handshake_s)
        except asyncio.TimeoutError:
            raise Idle from None
        finally:
            self._unbegun[peer] -= 1
            if not self._unbegun[peer]:
                del self._unbegun[peer]

    async def _text(self, context: Any) -> None:
        kind: type[DraftText] | type[VerifyText] = DraftText if self._role == "draft" else VerifyText
        message = await self._request(context, kind.incoming)
        begin, session = get_begin(message, n_vocab=self._n_vocab, n_ctx=self._n_ctx), message.session
        begin.client = crc32(context.peer().rpartition(":")[0].encode())  # its draft must not decide for other clients
        if (old := self._texts.get(session)) is not None:
            await self._evict(old, context)
        seat = await self._seat(begin.prompt, context, kind.nothing())
        text = kind(context, seat, self._n_vocab, self._idle_s)
        self._texts[session] = text
        try:
            text.beginning = asyncio.ensure_future(asyncio.to_thread(seat.begin, begin))
            await _patiently(context, kind.nothing(), text.beginning)
            await text.run()
        finally:
            # In its own task: this task is cancelled if the client disconnects.
            await asyncio.shield(self._later(self._free(session, text)))

    async def _request(self, context: Any, incoming: type[Any]) -> wire.Begin:
        """The request in the first message. Raises Idle, ProtocolError, _Refused."""
        data = await self._first(context)
        first = None if data is grpc.aio.EOF else parse(incoming, data)
        if first is None or not first.HasField("begin"):
            raise ProtocolError("the first message does not start a text")
        begin: wire.Begin = first.begin
        check_keys(begin)
        if begin.instance != self._instance:
            _refuse(Code.ABORTED, "the host was restarted; repeat the handshake")
        return begin

    async def _evict(self, old: DraftText | VerifyText, context: Any) -> None:
        """The client lost the connection of that text before the host noticed. It gets its seat and its cache back."""
        old.evicted.set()
        ending = asyncio.ensure_future(asyncio.wait_for(old.done.wait(), self._handshake_s))
        try:
            await _patiently(context, old.nothing(), ending)
        except asyncio.TimeoutError:
            self._busy()
        finally:
            ending.cancel()

    async def _seat(self, prompt: Sequence[int], context: Any, nothing: Any) -> Any:
        """A seat for this prompt. Raises Idle, _Refused."""
        taking = asyncio.ensure_future(self._seats.take(prompt, BUSY_WAIT_S))
        try:
            seat = await _patiently(context, nothing, taking)
        except BaseException:
            taking.cancel()
            taking.add_done_callback(self._keep)
            raise
        if seat is None:
            self._busy()
        return seat

    def _busy(self) -> NoReturn:
        n = self._seats.n
        _refuse(Code.RESOURCE_EXHAUSTED, f"the host is busy with {plural(n, 'text')}, its maximum")

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved; the client may be gone

    def _keep(self, future: asyncio.Future[Any]) -> None:
        """Gives back a seat that was taken for a client that is gone."""
        if not future.cancelled() and future.exception() is None and (seat := future.result()) is not None:
            self._later(self._seats.give_back(seat))

    async def _free(self, session: bytes, text: DraftText | VerifyText) -> None:
        try:
            await asyncio.wait({text.beginning})  # a thread cannot be cancelled
            if text.pump is not None:
                await text.pump.stop()
            await asyncio.to_thread(text.end)
        finally:
            await self._seats.give_back(text.seat)
            if self._texts.get(session) is text:
                del self._texts[session]
            text.done.set()


async def _patiently(context: Any, nothing: Any, work: asyncio.Future[Any]) -> Any:
    """The result of `work`. Meanwhile the client regularly gets an empty message. Raises Idle."""
    while not (await asyncio.wait({work}, timeout=1.0))[0]:
        await write_in_time(context, nothing)
    return work.result()


class _Refused(Exception):  # noqa: N818 - an answer, no error
    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def _refuse(code: grpc.StatusCode, why: str) -> NoReturn:
    raise _Refused(code, why)
