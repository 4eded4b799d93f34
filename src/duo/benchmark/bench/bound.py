"""How fast speculation can be: formulas. The unit of time is one pass of the target over one token.

a: probability that the draft's token at a position is accepted, given that those before it are; the last value holds
for all further positions. c: time of one step of the draft. v(n): time of one pass of the target over n tokens,
v(1) = 1. k: drafted tokens in a pass. E(k): expected tokens from such a pass. Plain decoding makes one token per unit,
so every speed here is a speed-up over plain decoding.

Sources: Leviathan et al., arXiv 2211.17192 (E(k), taking turns); PEARL, arXiv 2408.11850 (drafting while the target
verifies); SSD, arXiv 2603.03251 (hits and misses).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

PassCost = Callable[[float], float]


def tokens_per_pass(a: Sequence[float], k: int | None = None) -> float:
    """E(k) = 1 + a1 + a1*a2 + ... + a1*...*ak; for one a at all positions (1 - a^(k+1)) / (1 - a).

    k: drafted tokens; None: as many as `a` has. Infinite k is `most_tokens_per_pass`.
    """
    tokens = chance = 1.0
    for i in range(len(a) if k is None else k):
        chance *= _at(a, i)
        tokens += chance
    return tokens


def most_tokens_per_pass(a: Sequence[float]) -> float:
    """The limit of E(k) for infinite k; for one a at all positions 1 / (1 - a). Infinite if nothing is ever refused."""
    if not a:
        return 1.0
    chance = math.prod(a)
    if chance == 0:
        return tokens_per_pass(a)
    return math.inf if a[-1] >= 1 else tokens_per_pass(a) + chance * a[-1] / (1 - a[-1])


def taking_turns(a: Sequence[float], c: float, v: PassCost, k: int) -> float:
    """E(k) / (v(k+1) + k*c): draft k tokens, then verify them, one after the other. k = 0: plain decoding, 1."""
    return tokens_per_pass(a, k) / (v(k + 1) + k * c)


def best_sync(a: Sequence[float], c: float, v: PassCost, k_max: int) -> tuple[int, float]:
    """The k from 1 to k_max with the fastest `taking_turns`, and its speed-up. If several are equal, the smallest k."""
    speeds = {k: taking_turns(a, c, v, k) for k in range(1, k_max + 1)}
    best = max(speeds, key=lambda k: speeds[k])
    return best, speeds[best]


def overlapped_bound(a: Sequence[float], c: float, v: PassCost, k_max: int) -> float:
    """Maximum over k from 0 to k_max of min(E(k) / max(v(k+1), k*c), 1/c, E(infinity)).

    It assumes that both models always work and that a miss loses no work, so no method that drafts a single chain of
    tokens is faster. A text of n tokens needs n draft steps (1/c), unless the target works alone (k = 0: 1), and each
    refusal needs a pass (E(infinity), 1/(1-a) for one a at all positions).
    """
    most = min(math.inf if c <= 0 else 1 / c, most_tokens_per_pass(a))
    speeds = (tokens_per_pass(a, k) / max(v(k + 1), k * c) for k in range(1, k_max + 1))
    return max(1.0, min(most, max(speeds, default=1.0)))


def hit_miss(h: float, e_hit: float, e_miss: float, v: float, k_c: float, b: float) -> float:
    """[h*E_hit + (1-h)*E_miss] / [h*max(v, k*c) + (1-h)*(v + b)].

    h: share of passes after a hit (the target's own token was among the drafted ones). e_hit, e_miss: tokens of a pass
    after a hit and after a miss. v: time of a pass. k_c: time in which the draft prepares the next pass. b: the extra
    cost of a miss, which is the wait for new drafted tokens.
    """
    return (h * e_hit + (1 - h) * e_miss) / (h * max(v, k_c) + (1 - h) * (v + b))


def conditional(by_position: Sequence[float]) -> list[float]:
    """Conditional probabilities of acceptance at each position, given that those before are accepted.

    by_position: unconditional probabilities. The result ends after the first position where nothing was accepted.
    """
    shares = []
    before = 1.0
    for p in by_position:
        if before <= 0:
            break
        shares.append(min(1.0, p / before))
        before = p
    return shares


def pass_cost(ms: Mapping[int, float]) -> PassCost:
    """v(n) from measured milliseconds by width: linear between widths and beyond the last one.

    Beyond the last width the last slope continues, but not below zero, since a measured dip is noise.

    Raises ValueError: width 1 is missing, or there is no other width.
    """
    if 1 not in ms or len(ms) < 2:
        raise ValueError("pass times of width 1 and of another width are required")
    widths = sorted(ms)

    def v(n: float) -> float:
        i = next((i for i, w in enumerate(widths) if w >= n), len(widths))
        if i == 0:
            return 1.0
        low, high = widths[min(i, len(widths) - 1) - 1], widths[min(i, len(widths) - 1)]
        slope = (ms[high] - ms[low]) / (high - low)
        if i == len(widths):
            return (ms[high] + max(0.0, slope) * (n - high)) / ms[1]
        return (ms[low] + slope * (n - low)) / ms[1]

    return v


def _at(a: Sequence[float], i: int) -> float:
    return a[min(i, len(a) - 1)] if a else 0.0
