"""What must be true after a fault. WrongError says what is not."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

# Ends of a process that no user's mistake and no fault around it may cause.
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP)
_BAD_WORDS = re.compile(r"Traceback|terminate called|Exception ignored|GGML_ASSERT|Segmentation fault|Fatal Python")


class WrongError(Exception):
    """A text that differs, a process that crashed, something that was left behind."""


@dataclass
class Seen:
    """What one fault has shown."""

    texts: int = 0  # whole texts that were equal to the reference
    tokens: int = 0  # all tokens compared, also of texts that the fault cut off
    cut: int = 0  # texts that a fault cut off, right up to there
    sentences: int = 0  # ends with a sentence: an error's, or a warning's
    counts: dict[str, int] = field(default_factory=dict)  # of anything else, by name

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def add(self, other: Seen) -> None:
        self.texts += other.texts
        self.tokens += other.tokens
        self.cut += other.cut
        self.sentences += other.sentences
        for name, n in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def whole(self, got: Sequence[int], right: Sequence[int]) -> None:
        """A whole text. Raises WrongError."""
        if list(got) != list(right):
            raise WrongError(f"a text differs: {first_difference(got, right)}")
        self.texts += 1
        self.tokens += len(got)

    def part(self, got: Sequence[int], right: Sequence[int]) -> None:
        """A text that a fault may have cut off. Raises WrongError."""
        if list(got) != list(right[: len(got)]):
            raise WrongError(f"a text that was cut off differs: {first_difference(got, right)}")
        self.tokens += len(got)
        if len(got) == len(right):
            self.texts += 1
        else:
            self.cut += 1

    def ended(self, got: Sequence[int], result: Sequence[int], right: Sequence[int]) -> None:
        """A text that somebody ended: what its reader had got, and its result, which has that at least."""
        if list(result[: len(got)]) != list(got):
            raise WrongError(f"the result lacks what was read: {first_difference(result, got)}")
        self.part(result, right)

    def sentence(self, e: BaseException | str) -> None:
        """Raises WrongError: it is none."""
        check_sentence(str(e))
        self.sentences += 1

    def text_part(self, got: str, right: str) -> None:
        """What a program has printed before it ended. Raises WrongError."""
        if not right.startswith(got):
            n = next((i for i, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), len(right))
            raise WrongError(f"the output differs at character {n}: {got[n:][:40]!r} instead of {right[n:][:40]!r}")
        self.cut += got != right
        self.texts += got == right


def first_difference(got: Sequence[int], right: Sequence[int]) -> str:
    n = next((i for i, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), min(len(got), len(right)))
    return f"{len(got)} tokens of {len(right)}, at {n} {list(got[n : n + 4])} instead of {list(right[n : n + 4])}"


def check_sentence(text: str) -> None:
    if "\n" in text or len(text) < 12 or _BAD_WORDS.search(text):
        raise WrongError(f"this is no sentence: {text[:300]!r}")


def check_end(code: int, err: str, allowed: Sequence[int]) -> None:
    """How a program ended. allowed: exit codes, and signals as negative numbers. Raises WrongError."""
    if found := _BAD_WORDS.search(err):
        at = found.start()
        raise WrongError(f"{found[0]!r} in what it said (exit code {code}): {err[max(0, at - 200) : at + 1500]!r}")
    if -code in CRASHES:
        raise WrongError(f"it crashed with {signal.Signals(-code).name}: {err[-300:]!r}")
    if code not in allowed:
        raise WrongError(f"exit code {code}, allowed are {list(allowed)}: {err[-300:]!r}")
    if code == 1:
        last = (err.strip().splitlines() or [""])[-1]
        if not last.startswith("duo: "):
            raise WrongError(f"exit code 1 without a sentence: {err[-300:]!r}")
