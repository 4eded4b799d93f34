"""Converts ring messages and text between the core's tuples and network messages, and checks every value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from duo.errors import PeerLostError
from duo.options.option import N_DRAFT_MAX
from duo.remote.wire import wire_pb2 as wire

N_SIZE_SLACK = 128  # tokens that one vocabulary may have more than the other
N_BATCH_MAX = 1024  # nodes, verdicts or chunks in one message
N_FIGURES_MAX = 64

NodeTuple = tuple[str, bool, int, int, int, float, int, int, float]
VerdictTuple = tuple[str, int, int, int, int, int, int, int, int]
ChunkTuple = tuple[str, bool, bool, str, int, float, int, int]

NODE_KINDS = ("node", "pause", "failed", "share")
VERDICT_KINDS = ("verdict", "end", "orders")
CHUNK_KINDS = ("token", "logprob", "end")
FINISHES = ("", "stop", "length", "cancelled", "error")


class ProtocolError(PeerLostError):
    """The peer has sent something that duo never sends."""


def printable(text: str) -> str:
    """A peer's text, made safe for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:300])


def in_range(value: int, low: int, high: int, what: str) -> int:
    """`value`. Raises ProtocolError."""
    if not low <= value <= high:
        raise ProtocolError(f"{what} is {value}, outside {low} to {high}")
    return value


def small(value: int, what: str) -> int:
    """A count that fits the core's 16 bits."""
    return in_range(value, -1, 2**15 - 1, what)


def finite(value: float, what: str, low: float = -1e30, high: float = 1e30) -> float:
    """`value`. Raises ProtocolError."""
    if not (math.isfinite(value) and low <= value <= high):
        raise ProtocolError(f"{what} is {value}, which is not a valid number")
    return value


def count(n: int, most: int, what: str) -> None:
    """Raises ProtocolError if there are too many."""
    if n > most:
        raise ProtocolError(f"one message has {n} {what}, more than {most}")


def put_nodes(out: wire.FromDraft | wire.ToVerify, nodes: Iterable[NodeTuple]) -> None:
    """Appends nodes to a message; a message may have N_BATCH_MAX nodes at most."""
    add = out.nodes.add
    for kind, guess, id, parent, token, logp, rank, n_rows, step_us in nodes:
        add(
            kind=wire.Node.Kind.Value(kind.upper()), named=not guess, id=id, parent=parent, token=token, logp=logp,
            rank=rank, n_rows=n_rows, step_us=step_us,
        )  # fmt: skip


def get_nodes(message: wire.FromDraft | wire.ToVerify, n_vocab: int) -> list[NodeTuple]:
    """Drops tokens that the target's vocabulary of n_vocab tokens does not have. Raises ProtocolError."""
    count(len(message.nodes), N_BATCH_MAX, "nodes")
    return [
        (
            NODE_KINDS[in_range(m.kind, 0, len(NODE_KINDS) - 1, "the kind of a node")],
            not m.named,
            m.id,
            m.parent,
            in_range(m.token, -1, n_vocab - 1, "the token of a node"),
            finite(m.logp, "the probability of a node", high=0.001),
            small(m.rank, "the rank of a node"),
            small(m.n_rows, "the number of rows"),
            finite(m.step_us, "the time of a step", 0.0, 1e9),
        )
        for m in message.nodes
        if not n_vocab <= m.token < n_vocab + N_SIZE_SLACK
    ]


def put_verdicts(out: wire.ToDraft | wire.FromVerify, verdicts: Iterable[VerdictTuple]) -> None:
    """As put_nodes."""
    add = out.verdicts.add
    for kind, accepted, token, n_ahead, n_branch, n_want, branch_price, least_path, sharpness in verdicts:
        add(
            kind=wire.Verdict.Kind.Value(kind.upper()), accepted=accepted, token=token, n_ahead=n_ahead,
            n_branch=n_branch, n_want=n_want, branch_price=branch_price, least_path=least_path,
            sharpness=sharpness,
        )  # fmt: skip


def get_verdicts(message: wire.ToDraft | wire.FromVerify, n_vocab: int) -> list[VerdictTuple]:
    """Raises ProtocolError."""
    count(len(message.verdicts), N_BATCH_MAX, "verdicts")
    return [
        (
            VERDICT_KINDS[in_range(m.kind, 0, len(VERDICT_KINDS) - 1, "the kind of a verdict")],
            m.accepted,
            in_range(m.token, -1, n_vocab - 1, "the token of a verdict"),
            small(m.n_ahead, "the look-ahead"),
            small(m.n_branch, "the number of branches"),
            small(m.n_want, "the number of wanted nodes"),
            small(m.branch_price, "the price of a branch"),
            small(m.least_path, "the minimum probability"),
            in_range(m.sharpness, -(2**15), 2**15 - 1, "the sharpness"),
        )
        for m in message.verdicts
    ]


def put_chunks(out: wire.FromVerify, chunks: Iterable[ChunkTuple]) -> None:
    """As put_nodes."""
    add = out.chunks.add
    for kind, from_draft, hidden, finish, token, logp, n_hold, n_drop in chunks:
        add(
            kind=wire.Chunk.Kind.Value(kind.upper()), from_draft=from_draft, hidden=hidden, finish=finish, token=token,
            logp=logp, n_hold=n_hold, n_drop=n_drop,
        )  # fmt: skip


def get_chunks(message: wire.FromVerify, n_vocab: int) -> list[ChunkTuple]:
    """Raises ProtocolError."""
    count(len(message.chunks), N_BATCH_MAX, "pieces of text")
    out: list[ChunkTuple] = []
    for m in message.chunks:
        kind = CHUNK_KINDS[in_range(m.kind, 0, len(CHUNK_KINDS) - 1, "the kind of a piece of text")]
        if m.finish not in FINISHES or (kind == "end") != (m.finish != ""):
            raise ProtocolError(f"a piece of text of kind {kind} ends with {m.finish[:20]!r}")
        token = in_range(m.token, -1 if kind == "end" else 0, n_vocab - 1, "the token of a piece of text")
        # The log-probability of an impossible token is -inf.
        logp = m.logp if m.logp == -math.inf else finite(m.logp, "a log-probability", high=0.01)
        held, dropped = (in_range(n, 0, 2**30, "a number of bytes") for n in (m.n_hold, m.n_drop))
        out.append((kind, m.from_draft, m.hidden, m.finish, token, logp, held, dropped))
    return out


def put_figures(out: wire.FromVerify, stats: Mapping[str, Any]) -> None:
    """Appends what the host counted during a text: numbers and lists of numbers."""
    for name, value in stats.items():
        values = value if isinstance(value, list) else [value]
        out.figures.add(name=name, values=values, is_list=isinstance(value, list))


def get_figures(message: wire.FromVerify) -> dict[str, int | list[int]]:
    """Raises ProtocolError."""
    count(len(message.figures), N_FIGURES_MAX, "figures")
    figures: dict[str, int | list[int]] = {}
    for f in message.figures:
        count(len(f.values), N_DRAFT_MAX, "values of a figure")
        values = [in_range(v, 0, 2**31 - 1 if f.is_list else 2**53, "a figure") for v in f.values]
        if not f.is_list and len(values) != 1:
            raise ProtocolError("a figure has no value")
        figures[f.name[:64]] = values if f.is_list else values[0]
    return figures
