"""What a hostile peer may send: random bytes, damaged messages, well-formed nonsense. All of it from a seed."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from duo.remote import wire_pb2 as wire

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
        n_ahead=rng.choice(INTS), n_branch=rng.choice(INTS), alone=rng.random() < 0.5, n_want=rng.choice(INTS),
        branch_price=rng.choice(INTS),
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
        elif how == 5:
            out.plan.n_draft, out.plan.n_branch = rng.choice(INTS), rng.choice(INTS)
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
