"""The figures and the recommendation of `duo tune`."""

from __future__ import annotations

from dataclasses import dataclass, field

from duo.benchmark.sharing import Sharing


@dataclass(frozen=True)
class Advice:
    with_draft: bool = True
    flags: tuple[str, ...] = ()  # in addition to the models and their placement
    reasons: tuple[str, ...] = ()  # one sentence each


@dataclass
class Tuning:
    """All figures and the conclusions. Speeds are in tokens/s."""

    pass_ms: dict[int, float] = field(default_factory=dict)  # by rows, while the draft waits
    step_ms: dict[int, float] = field(default_factory=dict)  # steps of the draft by nodes, while the target works
    step_alone_ms: float | None = None
    acceptance: list[float] = field(default_factory=list)  # of the best guess by level, if those above are right
    slowdown: float = 1.0  # factor on the time of passes while the draft works
    hidden_share: float = 0.0  # share of the draft's time that is hidden behind the target
    n_sync: int = 1  # the best draft length of sync by the formula
    expected: dict[str, float] = field(default_factory=dict)  # by arm, from the formulas
    measured: dict[str, float] = field(default_factory=dict)  # by arm, on the same prompts
    sharing: Sharing = field(default_factory=Sharing)
    advice: Advice = field(default_factory=Advice)
    saved: str | None = None  # the file; None: DUO_PROFILES=off, or it cannot be written

    def v(self, rows: int) -> float:
        """Time of a pass over `rows` tokens, in passes over one."""
        return self.pass_ms[rows] / self.pass_ms[1]

    def c(self, step_ms: float) -> float:
        """Time of a draft step, in passes over one token."""
        return step_ms / self.pass_ms[1]
