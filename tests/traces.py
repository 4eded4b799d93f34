"""Traces that tests make: events, a text's worth of them, and their file."""

from pathlib import Path

from duo.generation.trace_writer import Event, TraceWriter


def event(kind: str, lane: str, t0_us: int, t1_us: int, *, slot: int = 0, drafted: int = 0, accepted: int = 0) -> Event:
    return Event(kind, lane, t0_us, t1_us, slot, drafted + 1, accepted, drafted, accepted == drafted > 0, 0)


def generation(n_verifications: int, n_slots: int = 1) -> list[Event]:
    """A prompt, then verifications of 20 ms with draft steps below, some of which reach beyond them."""
    events = [event("prompt", "target", 1_000_000, 1_100_000), event("prompt", "draft", 1_000_000, 1_030_000)]
    for i in range(n_verifications):
        t0_us, slot = 1_100_000 + 25_000 * i, i % n_slots
        events.append(event("verify", "target", t0_us, t0_us + 20_000, slot=slot, drafted=i % 5, accepted=i % 5 // 2))
        events += [event("draft", "draft", t0_us + 6000 * k, t0_us + 6000 * (k + 1), slot=slot) for k in range(4)]
        events.append(event("wait", "target", t0_us + 20_000, t0_us + 25_000, slot=slot))
    return events


def write(path: Path, events: list[Event], draft: str | None = "small.gguf") -> Path:
    with TraceWriter(path, target="big.gguf", draft=draft) as writer:
        writer.add(events)
    return path
