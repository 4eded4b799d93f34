"""The first message of a stream: the prompt, the options and the position to start from."""

from __future__ import annotations

import math
from typing import Any, get_args

from duo import _core
from duo.errors import BadValueError, ContextFullError
from duo.options.option import AcceptRule
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import ProtocolError, count, finite, in_range

N_KEY = 16  # bytes of an instance and of a session

# The core checks by the same table.
_MOST = _core.LIMITS
N_STOPS_MAX, N_STOP_BYTES_MAX = _MOST["n_stops"], _MOST["n_stop_bytes"]
N_BIAS_MAX, N_GRAMMAR_BYTES_MAX = _MOST["n_bias"], _MOST["n_grammar_bytes"]
_SAMPLING: dict[str, tuple[float, float]] = {**_MOST["sampling"], "seed": (0, 2**64 - 1), "ignore_eos": (0, 1)}
_TEXTS = ("grammar", "dry_sequence_breakers", "accept")
_PLAN: dict[str, tuple[float, float]] = {**_MOST["plan"], "has_model": (0, 1), "always": (0, 1)}
_RULES = {"accept": get_args(AcceptRule)}
_NAMES: dict[str, tuple[str, ...]] = {
    "mode": ("plain", "sync", "async"),
    "use": ("auto", "chain", "dynamic"),
    "ngram": ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod"),
}


def n_message_most(n_ctx: int) -> int:
    """Bytes of the longest message that a host with this context accepts: a full prompt and all options."""
    return 5 * n_ctx + 128 * 1024 + N_GRAMMAR_BYTES_MAX


def put_begin(begin: _core.Begin, *, instance: bytes, session: bytes) -> wire.Begin:
    """The message. Raises BadValueError: a host would refuse it (too many stop strings or biases, a long grammar)."""
    if len(begin.stop) > N_STOPS_MAX or any(len(s.encode()) > N_STOP_BYTES_MAX for s in begin.stop):
        raise BadValueError(
            f"a host accepts {N_STOPS_MAX} stop strings (-r) of {N_STOP_BYTES_MAX} bytes at most; give fewer"
        )
    if len(begin.sampling.logit_bias) > N_BIAS_MAX:
        raise BadValueError(f"a host accepts {N_BIAS_MAX} biases (-l) at most; give fewer")
    if len(begin.sampling.grammar.encode()) > N_GRAMMAR_BYTES_MAX:
        raise BadValueError(f"a host accepts a grammar of {N_GRAMMAR_BYTES_MAX} bytes at most; give a smaller one")
    sampling = wire.Sampling(**{name: getattr(begin.sampling, name) for name in (*_SAMPLING, *_TEXTS)})
    for token, bias in begin.sampling.logit_bias:
        sampling.logit_bias.add(token=token, bias=bias)
    plan = wire.Plan(**{name: getattr(begin.plan, name) for name in (*_PLAN, *_NAMES)})
    for path in begin.plan.tree:
        plan.tree.add(ranks=path)
    return wire.Begin(
        id=begin.id, prompt=begin.prompt, n_generated=begin.n_generated, n_predict=begin.n_predict,
        n_logprobs=begin.n_logprobs, stop=begin.stop, sampling=sampling, plan=plan, instance=instance, session=session,
    )  # fmt: skip


def _fields(message: Any, bounds: dict[str, tuple[float, float]], out: Any) -> None:
    for name, (low, high) in bounds.items():
        value = getattr(message, name)
        # Floats travel as 32 bits, so rounding may exceed a bound.
        if isinstance(value, float):
            finite(value, name, low - 1e-6 * abs(low), high + 1e-6 * abs(high))
        else:
            in_range(value, int(low), int(high), name)
        setattr(out, name, value)


def _names(message: Any, names: dict[str, tuple[str, ...]], out: Any) -> None:
    for name, choices in names.items():
        if getattr(message, name) not in choices:
            raise ProtocolError(f"{name} is {getattr(message, name)[:20]!r}, not one of {', '.join(choices)}")
        setattr(out, name, getattr(message, name))


def _sampling(message: wire.Sampling, n_vocab: int) -> _core.Sampling:
    out = _core.Sampling()
    _fields(message, _SAMPLING, out)
    _names(message, _RULES, out)
    count(len(message.logit_bias), N_BIAS_MAX, "biases")
    for b in message.logit_bias:
        in_range(b.token, 0, n_vocab - 1, "the token of a bias")
        if not (abs(b.bias) <= 1.1 * _MOST["bias"] or b.bias == -math.inf):
            raise ProtocolError(f"a bias is {b.bias}, which is not a valid number")
    out.logit_bias = [(b.token, b.bias) for b in message.logit_bias]
    count(len(message.grammar.encode()), N_GRAMMAR_BYTES_MAX, "bytes of a grammar")
    out.grammar = message.grammar
    breakers = message.dry_sequence_breakers
    count(len(breakers), _MOST["n_breakers"], "sequence breakers")
    if any(not 0 < len(b.encode()) <= _MOST["n_breaker_bytes"] or "\0" in b for b in breakers):
        raise ProtocolError("a sequence breaker is empty or too long")
    out.dry_sequence_breakers = list(breakers)
    return out


def _plan(message: wire.Plan) -> _core.Plan:
    out = _core.Plan()
    _fields(message, _PLAN, out)
    _names(message, _NAMES, out)
    count(len(message.tree), _MOST["n_tree"], "paths of a tree")
    paths = [list(p.ranks) for p in message.tree]
    nodes: set[tuple[int, ...]] = set()
    for p in paths:
        if not 1 <= len(p) <= _MOST["n_tree"] or max(p) > _MOST["n_rank"]:
            raise ProtocolError("a path of the tree is empty or too long, or has a rank that is too large")
        nodes.update(tuple(p[:n]) for n in range(1, len(p) + 1))
    count(len(nodes), _MOST["n_tree"], "nodes of a tree")
    if paths:
        out.tree = paths
    return out


def get_begin(message: wire.Begin, *, n_vocab: int, n_ctx: int) -> _core.Begin:
    """The core's Begin. Raises ProtocolError: no client of duo sends this. Raises ContextFullError: the text is too
    long."""
    n = len(message.prompt)
    in_range(n, 1, 2**31 - 1, "the number of the prompt's tokens")
    if n > n_ctx:
        raise ContextFullError(
            f"the text has {n} tokens and the host's context {n_ctx}; start the host with a larger -c"
        )
    in_range(max(message.prompt), 0, n_vocab - 1, "a token of the prompt")
    in_range(message.id, 2**63, 2**64 - 1, "the id of a text")
    count(len(message.stop), N_STOPS_MAX, "stop strings")
    if any(not 0 < len(s.encode()) <= N_STOP_BYTES_MAX or "\0" in s for s in message.stop):
        raise ProtocolError("a stop string is empty or too long")
    out = _core.Begin()
    out.id, out.prompt, out.stop = message.id, list(message.prompt), list(message.stop)
    out.n_generated = in_range(message.n_generated, 0, n - 1, "the number of generated tokens")
    out.n_predict = in_range(message.n_predict, -1, 2**31 - 1, "the number of wanted tokens")
    out.n_logprobs = in_range(message.n_logprobs, -1, _MOST["n_logprobs"], "the number of log-probabilities")
    out.sampling, out.plan = _sampling(message.sampling, n_vocab), _plan(message.plan)
    return out


def check_keys(message: wire.Begin) -> None:
    """Raises ProtocolError: the keys of instance and session have a wrong length."""
    if len(message.instance) != N_KEY or len(message.session) != N_KEY:
        raise ProtocolError("the first message has no valid key of the instance or of the session")
