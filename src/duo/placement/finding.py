"""Which kernels may be used on this machine, and how to tell the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duo import _core
from duo.build_advice import rebuild
from duo.placement.trial import ABSENT, FAULTS, HANGS, TIMEOUT_S, WORKS, WRONG

PLAIN = "plain"
AMX = "AMX"  # ggml's, never used without a trial, because many builds of it crash
_OURS = "duo "


@dataclass(frozen=True)
class Finding:
    """Which kernels this process may use."""

    # By kind of product: WORKS, or how it failed (duo.placement.trial).
    verdicts: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()  # the extra buffer types of this libggml-cpu
    not_tried: str = ""  # why some kinds have no verdict

    @property
    def extra_allowed(self) -> bool:
        """Whether libllama may put weights into the extra buffer types. It uses all of them or none."""
        return all(self.verdicts.get(name, "" if name == AMX else WORKS) == WORKS for name in self.extra)

    @property
    def refused(self) -> list[str]:
        """duo's instruction sets that fail on this machine."""
        return [_isa(name) for name, end in self.verdicts.items() if _isa(name) and end not in (WORKS, ABSENT)]

    @property
    def obstacle(self) -> str:
        """Why this CPU cannot compute anything, as a sentence; empty if it can."""
        end = self.verdicts.get(PLAIN, WORKS)
        if end not in (WRONG, "SIGABRT", *FAULTS):
            return ""
        return (
            f"llama.cpp's stock kernels {_how(end)}, so duo cannot compute on this machine; "
            f"build llama-cpp-python on it: {rebuild()}"
        )

    @property
    def warning(self) -> str:
        """One line: which kernels exist but are not used, and how to repair them; empty if all are used."""
        if self.obstacle:
            return ""
        sentences = []
        for name in self.extra:
            if (end := self.verdicts.get(name, WORKS)) != WORKS:
                sentences.append(
                    f"stock {name} kernels {_how(end)} and are not used; to repair them: {rebuild(amx=name == AMX)}"
                )
        if AMX in self.extra and AMX not in self.verdicts:
            sentences.append(f"stock AMX kernels are not used because they could not be tried ({self.not_tried})")
        if self.refused:
            ends = ", ".join(f"duo's {name} kernels {_how(self.verdicts[kind_of(name)])}" for name in self.refused)
            best = _best()
            sentences.append(f"{ends}; {f'its {best}' if best else 'stock'} kernels are used instead")
        return "; ".join(sentences)

    def lines(self) -> list[str]:
        """One line for each kind, for a report."""
        lines = []
        own_kinds = [name for name, end in self.verdicts.items() if _isa(name) and end != ABSENT]
        for name in (PLAIN, *self.extra, *own_kinds):
            what = f"duo's {_isa(name)} kernels" if _isa(name) else f"stock {name} kernels".replace(f" {PLAIN}", "")
            end = self.verdicts.get(name, "")
            if end == WORKS:
                off = name in self.extra and not self.extra_allowed
                lines.append(f"{what}: work{'; not used, because libllama uses all or none' if off else ''}")
            elif end:
                repair = "" if _isa(name) else f"; to repair them: {rebuild(amx=name == AMX)}"
                lines.append(f"{what}: {_how(end)}; not used{repair}")
            else:
                used = "" if name != AMX else "; not used"
                lines.append(f"{what}: not tried ({self.not_tried}){used}")
        return lines


def kind_of(isa: str) -> str:
    """The name in duo.placement.trial for products of duo's kernels with this instruction set."""
    return _OURS + isa


def _isa(kind: str) -> str:
    """The instruction set of a kind of duo's products; empty for a stock kind."""
    return kind.removeprefix(_OURS) if kind.startswith(_OURS) else ""


def _best() -> str:
    return next(iter(_core.usable_kernels()), "")


def _how(end: str) -> str:
    if end == WRONG:
        return "give wrong products here"
    return f"do not finish here ({TIMEOUT_S:g} s)" if end == HANGS else f"crash here ({end})"
