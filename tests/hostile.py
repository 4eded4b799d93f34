"""What a hostile peer may send: random bytes, damaged messages, well-formed nonsense; and both ends that do."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from conftest import HANG_S
from hosts import HostProcess

from duo import _core
from duo.generation.job import sampling, speculation
from duo.options.validate import generate_options
from duo.remote.wire import hello
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec_begin import put_begin

PATH = "/duo.v1.Host/"
N_LITTLE = 1 << 16  # bytes
# Without UNAVAILABLE: then a client looks for seconds into why it lost its host.
CODES = [c for c in grpc.StatusCode if c not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)]

IDS = (0, 1, 2, 3, 7, 100, 2**31, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1)
INTS = (0, 0, 1, 1, 2, 3, 8, 265, 700, 1535, 1536, 32767, 32768, 2**31 - 1, -1, -2, -(2**31))
FLOATS = (0.0, -0.1, -1.0, -20.0, 0.5, 1e9, 1e30, float("inf"), float("-inf"), float("nan"))


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Bits flipped, pieces cut out, doubled, moved."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not out:
            break
        i = rng.randrange(len(out))
        how = rng.randrange(4)
        if how == 0:
            out[i] ^= 1 << rng.randrange(8)
        elif how == 1:
            del out[i : i + rng.randint(1, 8)]
        elif how == 2:
            out[i:i] = out[i : i + rng.randint(1, 32)]
        else:
            out[i] = rng.randrange(256)
    return bytes(out)


def node(rng: random.Random) -> wire.Node:
    return wire.Node(
        kind=rng.choice((0, 0, 0, 1, 2, 3, 99)), named=rng.random() < 0.2, id=rng.choice(IDS), parent=rng.choice(IDS),
        token=rng.choice(INTS), logp=rng.choice(FLOATS), rank=rng.choice(INTS), n_rows=rng.choice(INTS),
        step_us=rng.choice(FLOATS),
    )  # fmt: skip


def verdict(rng: random.Random) -> wire.Verdict:
    return wire.Verdict(
        kind=rng.choice((0, 0, 0, 1, 2, 3, 99)), accepted=rng.choice(IDS), token=rng.choice(INTS),
        n_ahead=rng.choice(INTS), n_branch=rng.choice(INTS), n_want=rng.choice(INTS),
        branch_price=rng.choice(INTS), least_path=rng.choice(INTS), sharpness=rng.choice(INTS),
    )  # fmt: skip


def plausible_node(rng: random.Random) -> wire.Node:
    parent = rng.choice((*range(1, 50), 2**63 + 1))
    token = rng.randrange(1536)
    return wire.Node(id=rng.randrange(1, 5000), parent=parent, token=token, logp=-rng.random(), n_rows=1, step_us=99.0)


def plausible_verdict(rng: random.Random) -> wire.Verdict:
    return wire.Verdict(accepted=rng.randrange(0, 60), token=rng.randrange(1536), n_ahead=rng.randrange(8),
                        n_branch=1 + rng.randrange(4), branch_price=100)  # fmt: skip


def chunk(rng: random.Random) -> wire.Chunk:
    return wire.Chunk(
        kind=rng.choice((0, 0, 0, 1, 2, 3)), from_draft=rng.random() < 0.5, hidden=rng.random() < 0.1,
        finish=rng.choice(("", "", "stop", "length", "error", "cancelled", "x" * 100)), token=rng.choice(INTS),
        logp=rng.choice(FLOATS), n_hold=rng.choice(INTS), n_drop=rng.choice(INTS),
    )  # fmt: skip


def begin(rng: random.Random, good: wire.Begin) -> wire.Begin:
    """A beginning with some fields that are wrong."""
    out = wire.Begin()
    out.CopyFrom(good)
    for _ in range(rng.randint(1, 3)):
        how = rng.randrange(9)
        if how == 0:
            out.id = rng.choice(IDS)
        elif how == 1:
            del out.prompt[:]
            out.prompt.extend(
                rng.choice((0, 5, 1535, 1536, 2**32 - 1)) for _ in range(rng.choice((0, 1, 5, 600, 5000)))
            )
        elif how == 2:
            out.n_generated = rng.choice((0, 3, 2**32 - 1))
        elif how == 3:
            out.n_predict = rng.choice(INTS)
        elif how == 4:
            out.sampling.temp, out.sampling.top_p = rng.choice(FLOATS), rng.choice(FLOATS)
            out.sampling.dry_base, out.sampling.typical_p = rng.choice(FLOATS), rng.choice(FLOATS)
            out.sampling.dry_penalty_last_n = rng.choice((-1, 64, *INTS))
            out.sampling.dry_sequence_breakers.extend(
                "x" * rng.choice((0, 1, 41)) for _ in range(rng.choice((0, 1, 70)))
            )
        elif how == 5:
            out.plan.n_draft, out.plan.n_branch = rng.choice(INTS), rng.choice(INTS)
            out.plan.n_window = rng.choice(INTS)
        elif how == 6:
            for _ in range(rng.choice((1, 64, 200))):
                out.plan.tree.add(
                    ranks=[rng.choice((0, 1, 63, 64, 2**32 - 1)) for _ in range(rng.choice((0, 1, 3, 80)))]
                )
        elif how == 7:
            out.stop.extend("x" * rng.choice((0, 1, 2000)) for _ in range(rng.choice((1, 100))))
        else:
            out.instance, out.session = rng.randbytes(rng.choice((0, 15, 16))), rng.randbytes(rng.choice((0, 16, 17)))
    return out


def message(
    rng: random.Random, make: Callable[[], Any], parts: Sequence[tuple[str, Callable[[random.Random], Any]]]
) -> bytes:
    """One message of a stream. parts: (repeated field, what makes one of it)."""
    how = rng.randrange(8)
    if how == 0:
        return rng.randbytes(rng.choice((0, 1, 3, 20, 200, 4000)))
    m = make()
    for name, one in parts:
        n = rng.choice((0, 1, 1, 2, 5, 30)) if how != 1 else rng.choice((1023, 1024, 1025, 20_000))
        getattr(m, name).extend([one(rng)] * n if n > 100 else [one(rng) for _ in range(n)])
    if rng.random() < 0.2:
        setattr(m, "ping" if hasattr(m, "ping") else "pong", rng.choice((0, 1, 2**64 - 1)))
    data: bytes = m.SerializeToString()
    return damaged(rng, data) if how == 2 else data


def as_it_is(data: Any) -> Any:
    return data


def good_begin(instance: bytes, session: bytes) -> wire.Begin:
    b = _core.Begin()
    o = generate_options({"max_tokens": 30, "ignore_eos": True})
    b.id, b.prompt, b.n_predict = 2**63 + 1, [1, 300, 400, 500], 30
    b.sampling, b.plan, b.stop = sampling(o, 1), speculation(o), []
    return put_begin(b, instance=instance, session=session)


class Attacker:
    """A client that speaks gRPC and nothing else that it should. One stream after the other."""

    def __init__(self, h: HostProcess, seed: int) -> None:
        self.rng, self.role = random.Random(seed), h.role
        self.channel = grpc.insecure_channel(h.address, [("grpc.use_local_subchannel_pool", 1)])
        say = self.channel.unary_unary(PATH + "Hello", as_it_is, wire.HelloReply.FromString)
        request = wire.HelloRequest(protocol=hello.PROTOCOL, role=h.role)
        self.instance = say(request.SerializeToString(), timeout=HANG_S).instance
        self.method = "Draft" if h.role == "draft" else "Verify"
        self.make: Any = wire.ToDraft if h.role == "draft" else wire.ToVerify
        whole, likely = (verdict, plausible_verdict) if h.role == "draft" else (node, plausible_node)
        field = "verdicts" if h.role == "draft" else "nodes"
        self.parts, self.likely = [(field, whole)], [(field, likely)]
        self.n = 0

    def first(self) -> bytes:
        good = good_begin(self.instance, self.rng.randbytes(16))
        how = self.rng.randrange(6)
        if how == 0:
            return message(self.rng, self.make, self.parts)
        if how == 1:
            return damaged(self.rng, self.make(begin=good).SerializeToString())
        if how == 2:
            return self.make(begin=begin(self.rng, good)).SerializeToString()
        return self.make(begin=good).SerializeToString()

    def messages(self, n: int) -> Iterator[bytes]:
        self.n += 1
        yield self.first()
        for _ in range(n):
            self.n += 1
            if self.rng.random() < 0.02:  # once more
                yield self.make(begin=good_begin(self.instance, bytes(16))).SerializeToString()
            yield message(self.rng, self.make, self.likely if self.rng.random() < 0.7 else self.parts)

    def stream(self) -> None:
        call = self.channel.stream_stream(PATH + self.method, as_it_is, as_it_is)(
            self.messages(self.rng.choice((0, 3, 10, 40))), timeout=HANG_S
        )
        how = self.rng.randrange(4)
        try:
            if how == 0:  # gone in the middle
                time.sleep(self.rng.random() * 0.01)
                call.cancel()
            for _ in call:
                pass
        except grpc.RpcError as e:
            assert e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), e.details()
            assert "Traceback" not in (e.details() or "")

    def ask(self) -> None:
        """Unary calls with nonsense in them."""
        self.n += 1
        name = self.rng.choice(("Hello", "Tokens", "Draft", "Verify", "Nothing"))
        data = damaged(self.rng, wire.TokensRequest(first=5, n=7).SerializeToString() + self.rng.randbytes(20))
        try:
            self.channel.unary_unary(PATH + name, as_it_is, as_it_is)(data, timeout=HANG_S)
        except grpc.RpcError as e:
            assert e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), e.details()

    def run(self, n: int) -> None:
        while self.n < n:
            (self.ask if self.rng.random() < 0.1 else self.stream)()
        self.channel.close()


# A client that takes no more than this of what it does not read: gRPC would take megabytes.
LITTLE = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", N_LITTLE))


def raw(
    h: HostProcess, method: str, address: str = "", options: Sequence[tuple[str, int]] = ()
) -> tuple[grpc.Channel, bytes, Any]:
    """A connection of its own, the host's instance, and what opens a stream. address: of a proxy before the host."""
    channel = grpc.insecure_channel(address or h.address, [("grpc.use_local_subchannel_pool", 1), *options])
    say = channel.unary_unary(PATH + "Hello", as_it_is, wire.HelloReply.FromString)
    instance = say(wire.HelloRequest(protocol=hello.PROTOCOL, role=h.role).SerializeToString(), timeout=HANG_S).instance
    return channel, instance, channel.stream_stream(PATH + method, as_it_is, as_it_is)


class HostileHost:
    """Says hello as it should, and then whatever it likes."""

    def __init__(self, role: str, seed: int) -> None:
        self.rng, self.role, self.n, self.lock = random.Random(seed), role, 0, threading.Lock()
        with ThreadPoolExecutor(1):
            pass
        self.server = grpc.server(ThreadPoolExecutor(8))
        handlers = {
            "Hello": grpc.unary_unary_rpc_method_handler(self.hello, wire.HelloRequest.FromString, as_it_is),
            "Tokens": grpc.unary_unary_rpc_method_handler(lambda r, c: b"", as_it_is, as_it_is),
            role.capitalize(): grpc.stream_stream_rpc_method_handler(self.text, as_it_is, as_it_is),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("duo.v1.Host", handlers),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def hello(self, request: wire.HelloRequest, context: Any) -> bytes:
        reply = wire.HelloReply(protocol=hello.PROTOCOL, version="0", role=self.role, instance=bytes(16))
        if request.HasField("identity"):
            reply.identity.CopyFrom(request.identity)
        else:
            reply.identity.vocabulary.n_vocab = 1
            reply.identity.vocabulary.blocks.append(0)
        reply.limits.n_ctx, reply.limits.n_seats, reply.limits.n_message = 1024, 1, 1 << 20
        data = reply.SerializeToString()
        with self.lock:
            return damaged(self.rng, data) if self.rng.random() < 0.1 and self.n else data

    def text(self, requests: Any, context: Any) -> Iterator[bytes]:
        make: Any = wire.FromDraft if self.role == "draft" else wire.FromVerify
        nodes = ("nodes", plausible_node), ("nodes", node)
        texts = ("verdicts", plausible_verdict), ("verdicts", verdict)
        for _ in range(self.rng.choice((0, 1, 10, 50))):
            with self.lock:
                self.n += 1
                wild = self.rng.random() < 0.1
                parts = [nodes[wild]] if self.role == "draft" else [texts[wild]]
                if self.role == "verify" and self.rng.random() < 0.5:
                    parts.append(("chunks", chunk if wild else self.token))
                data = message(self.rng, make, parts)
            yield data
        if self.rng.random() < 0.3:
            context.abort(self.rng.choice(CODES), "n\0\x1b[31m" * 5)

    @staticmethod
    def token(rng: random.Random) -> wire.Chunk:
        return wire.Chunk(token=rng.randrange(1536))
