"""The recommended flags for a pair and the reasons, from the figures of `duo tune`."""

from __future__ import annotations

from duo.benchmark.tuning import Advice, Tuning
from duo.support.wording import plural

CLOSE = 0.97  # --draft auto adapts to each text, so it is recommended unless it is slower than this share
VISIBLE = 1.1  # slowdown


def _choice(t: Tuning) -> tuple[bool, tuple[str, ...], str]:
    """Whether to use the draft, the flags, and a sentence with the speeds."""
    plain, auto, sync = t.measured["plain"], t.measured["async auto"], t.measured[f"sync {t.n_sync}"]
    best = max(plain, auto, sync)
    tokens = plural(t.n_sync, "drafted token")
    of_plain, of_sync = f"plain decoding ({plain:.1f})", f"sync with {tokens} ({sync:.1f})"
    if auto >= CLOSE * best:
        rank = "the fastest" if auto == best else f"within {100 * (1 - CLOSE):.0f}% of the fastest"
        why = f"Async ({auto:.1f} tokens/s) is {rank}, compared with {of_plain} and {of_sync}."
        return True, ("--draft", "auto"), why
    if sync == best:
        turns = of_sync.replace(")", " tokens/s)")
        why = f"{turns[0].upper() + turns[1:]} is faster than async ({auto:.1f}) and {of_plain}."
        return True, ("--mode", "sync", "--draft", str(t.n_sync)), why
    why = f"Plain decoding ({plain:.1f} tokens/s) is faster than async ({auto:.1f}) and {of_sync}"
    return False, (), f"{why}: leave out the draft (-md none)."


def _costs(t: Tuning) -> str:
    clauses = []
    if t.step_alone_ms is not None:
        clauses.append(f"a draft step takes {t.c(t.step_alone_ms):.2f} of a pass of the target")
    width = min(t.pass_ms, key=lambda w: (abs(w - 4), w))
    clauses.append(f"a pass over {width} tokens takes {t.v(width):.2f} of a pass over 1 token")
    if t.acceptance:
        later = f", and the second then {100 * t.acceptance[1]:.0f}%" if len(t.acceptance) > 1 else ""
        clauses.append(f"the draft's first guess is right {100 * t.acceptance[0]:.0f}% of the time{later}")
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def _slowed(t: Tuning) -> str:
    """Why the draft slows down passes, and what helps."""
    s, head = t.sharing, f"Passes take {t.slowdown:.2f} times as long while the draft works"
    if s.devices:
        names = ", ".join(s.devices)
        return f"{head}: both models are on {names}; -devd puts the draft on another device, -devd none on the CPU."
    if not s.cpu:
        return f"{head}: the devices share something, for example a memory bus or the bus to the host."
    if s.own_cores:
        return f"{head}: both have their own CPUs; they share the memory bus, or the cores of those CPUs."
    if not s.options:
        return f"{head}: both models are on the CPU, which has a single core for them; move one with -ngl or -ngld."
    if s.lends:
        return (
            f"{head}: both models are on the CPU, and the target uses the draft's cores only while the draft is idle."
        )
    why = "both models are on the CPU and may share a core or the memory bus"
    return f"{head}: {why}; to separate their cores: {s.options}."


def advise(t: Tuning) -> Advice:
    """t: complete figures."""
    with_draft, flags, why = _choice(t)
    reasons = [why, _costs(t)] + ([_slowed(t)] if t.slowdown > VISIBLE else [])
    return Advice(with_draft, flags, tuple(reasons))
