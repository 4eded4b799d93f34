"""What `duo tune` measures of a pair, and what it advises."""

from __future__ import annotations

from dataclasses import dataclass, field

from duo.measure.sharing import Sharing


@dataclass(frozen=True)
class Advice:
    with_draft: bool = True
    flags: tuple[str, ...] = ()  # besides the models and where they are
    reasons: tuple[str, ...] = ()  # a sentence each


@dataclass
class Tuning:
    """All that was measured, and what follows from it. Speeds are tokens/s."""

    pass_ms: dict[int, float] = field(default_factory=dict)  # by rows, while the draft waits
    step_ms: dict[int, float] = field(default_factory=dict)  # of the draft by nodes, while the target works
    step_alone_ms: float | None = None
    acceptance: list[float] = field(default_factory=list)  # of the best guess by level, those above it being right
    slowdown: float = 1.0  # of passes while the draft works
    hidden_share: float = 0.0  # of the draft's time, behind the target's
    n_sync: int = 1  # the length that the formula finds best for taking turns
    expected: dict[str, float] = field(default_factory=dict)  # by way of writing, from the formulas
    measured: dict[str, float] = field(default_factory=dict)  # in a race on the same prompts
    sharing: Sharing = field(default_factory=Sharing)
    advice: Advice = field(default_factory=Advice)
    saved: str | None = None  # the file; None: DUO_PROFILES=off, or it cannot be written

    def v(self, rows: int) -> float:
        """A pass over so many rows in passes over one."""
        return self.pass_ms[rows] / self.pass_ms[1]

    def c(self, step_ms: float) -> float:
        """A step of the draft in passes over one row."""
        return step_ms / self.pass_ms[1]
