"""Arms: what a run compares. Each is a mode with a draft length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from duo.errors import BadValueError
from duo.options.option import N_DRAFT_MAX, N_PARALLEL_MAX, Mode
from duo.support.comma_separated import comma_separated

Length = int | Literal["auto"]


@dataclass(frozen=True)
class Arm:
    """One way to generate a text."""

    name: str
    mode: Mode | None  # None: as the server has it
    n_draft: Length | None = None  # None: plain
    server: str = ""  # name of the server that writes; empty: models loaded here

    @property
    def local_mode(self) -> Mode:
        """The mode of models loaded here."""
        assert self.mode is not None
        return self.mode


PLAIN = Arm("plain", "plain")
ALONE = Arm("plain alone", "plain")  # the target with no draft loaded


def _words(text: str) -> list[str]:
    return comma_separated(text)


def parse_modes(text: str) -> tuple[Mode, ...]:
    """ "plain,async" -> modes, each once. Raises BadValueError."""
    modes = list(dict.fromkeys(_words(text)))
    for w in modes:
        if w not in get_args(Mode):
            raise BadValueError(f"--modes has the unknown mode {w!r}; choose from {', '.join(get_args(Mode))}")
    if not modes:
        raise BadValueError(f"--modes is empty; choose from {', '.join(get_args(Mode))}")
    return cast("tuple[Mode, ...]", tuple(modes))


def parse_lengths(text: str, flag: str, *, auto: bool) -> tuple[Length, ...]:
    """ "auto,4,8" -> draft lengths, each once. auto: allow the word auto. Raises BadValueError."""
    most = N_DRAFT_MAX
    lengths: list[Length] = []
    for w in _words(text):
        if w == "auto" and auto:
            lengths.append("auto")
        elif w.isdecimal() and 1 <= int(w) <= most:
            lengths.append(int(w))
        else:
            raise BadValueError(
                f"{flag} has the bad length {w!r}; give lengths from 1 to {most}{', or auto' * auto}, as 1,2,4"
            )
    if not lengths:
        raise BadValueError(f"{flag} is empty; give lengths, as 1,2,4")
    return tuple(dict.fromkeys(lengths))


def parse_slots(text: str) -> tuple[int, ...]:
    """ "2,4" -> numbers of texts at once, each once, from 1 on: others are compared with 1. Raises BadValueError."""
    counts = []
    for w in _words(text):
        if not (w.isdecimal() and 1 <= int(w) <= N_PARALLEL_MAX):
            raise BadValueError(
                f"--slots has the bad number {w!r}; give numbers from 1 to {N_PARALLEL_MAX}, as 1,2,4,8"
            )
        counts.append(int(w))
    if not counts:
        raise BadValueError("--slots is empty; give numbers of texts, as 1,2,4,8")
    return tuple(sorted({1, *counts}))


def arms_of(modes: Sequence[Mode], sync_lengths: Sequence[Length], lengths: Sequence[Length]) -> list[Arm]:
    """All arms of a run. Plain is always first, because the others are compared with it."""
    arms = [PLAIN]
    if "sync" in modes:
        arms += [Arm(f"sync {k}", "sync", k) for k in sync_lengths]
    if "async" in modes:
        arms += [Arm(f"async {k}", "async", k) for k in lengths]
    return arms
