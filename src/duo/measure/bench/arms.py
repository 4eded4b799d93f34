"""What is compared: a mode and a draft length, each a column of the race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from duo import _core
from duo.errors import DuoError
from duo.options.option import Mode

Length = int | Literal["auto"]


@dataclass(frozen=True)
class Arm:
    """One way to write a text."""

    name: str
    mode: Mode
    n_draft: Length | None = None  # None: plain


PLAIN = Arm("plain", "plain")
ALONE = Arm("plain alone", "plain")  # the target without any draft loaded beside it


def _words(text: str) -> list[str]:
    return [w for w in (part.strip() for part in text.split(",")) if w]


def parse_modes(text: str) -> tuple[Mode, ...]:
    """ "plain,async" -> modes, each once. Raises DuoError."""
    found = list(dict.fromkeys(_words(text)))
    for w in found:
        if w not in get_args(Mode):
            raise DuoError(f"--modes names {w!r}; choose from {', '.join(get_args(Mode))}")
    if not found:
        raise DuoError(f"--modes names none; choose from {', '.join(get_args(Mode))}")
    return cast("tuple[Mode, ...]", tuple(found))


def parse_lengths(text: str, flag: str, *, auto: bool) -> tuple[Length, ...]:
    """ "auto,4,8" -> draft lengths, each once. auto: whether that word may be one. Raises DuoError."""
    most = _core.N_DRAFT_MAX
    found: list[Length] = []
    for w in _words(text):
        if w == "auto" and auto:
            found.append("auto")
        elif w.isdecimal() and 1 <= int(w) <= most:
            found.append(int(w))
        else:
            raise DuoError(f"{flag} names {w!r}; give lengths from 1 to {most}{', or auto' * auto}, as 1,2,4")
    if not found:
        raise DuoError(f"{flag} names no length; give some, as 1,2,4")
    return tuple(dict.fromkeys(found))


def arms_of(modes: Sequence[Mode], sync_lengths: Sequence[Length], lengths: Sequence[Length]) -> list[Arm]:
    """All arms of a run. Plain comes first and is always there: it is the yardstick."""
    arms = [PLAIN]
    if "sync" in modes:
        arms += [Arm(f"sync {k}", "sync", k) for k in sync_lengths]
    if "async" in modes:
        arms += [Arm(f"async {k}", "async", k) for k in lengths]
    return arms
