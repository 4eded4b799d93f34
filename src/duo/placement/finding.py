"""Which kernels may be used on this machine, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duo import _core
from duo.build_advice import rebuild
from duo.placement.trial import ABSENT, FAULTS, HANGS, TIMEOUT_S, WORKS, WRONG

PLAIN = "plain"
AMX = "AMX"  # not used untried: too many builds of it crash
_OURS = "duo "


@dataclass(frozen=True)
class Finding:
    """Which kernels this process may use."""

    verdicts: Mapping[str, str] = field(
        default_factory=dict
    )  # kind of product -> WORKS, or how it failed; duo.placement.trial
    extra: tuple[str, ...] = ()  # the extra buffer types of this libggml-cpu
    not_tried: str = ""  # why the kinds without a verdict have none

    @property
    def extra_allowed(self) -> bool:
        """libllama may put weights into the extra buffer types. It takes all or none."""
        return all(self.verdicts.get(name, "" if name == AMX else WORKS) == WORKS for name in self.extra)

    @property
    def refused(self) -> list[str]:
        """duo's instruction sets that fail here."""
        return [_isa(name) for name, end in self.verdicts.items() if _isa(name) and end not in (WORKS, ABSENT)]

    @property
    def obstacle(self) -> str:
        """Why nothing can be computed on this CPU, as a sentence; empty: it can."""
        end = self.verdicts.get(PLAIN, WORKS)
        if end not in (WRONG, "SIGABRT", *FAULTS):
            return ""
        return (
            f"llama.cpp's stock kernels {_how(end)}, so duo cannot compute on this machine; "
            f"build llama-cpp-python on it: {rebuild()}"
        )

    @property
    def warning(self) -> str:
        """What is not used although it is there, and how it is mended, in one line; empty: nothing."""
        if self.obstacle:
            return ""
        said = []
        for name in self.extra:
            if (end := self.verdicts.get(name, WORKS)) != WORKS:
                said.append(
                    f"stock {name} kernels {_how(end)} and are not used; to mend it: {rebuild(amx=name == AMX)}"
                )
        if AMX in self.extra and AMX not in self.verdicts:
            said.append(f"stock AMX kernels are not used, as they could not be tried ({self.not_tried})")
        if self.refused:
            ends = ", ".join(f"duo's {name} kernels {_how(self.verdicts[kind_of(name)])}" for name in self.refused)
            best = _best()
            said.append(f"{ends}; {f'its {best}' if best else 'stock'} kernels are used instead")
        return "; ".join(said)

    def lines(self) -> list[str]:
        """For a report: each kind in a line."""
        said = []
        ours = [name for name, end in self.verdicts.items() if _isa(name) and end != ABSENT]
        for name in (PLAIN, *self.extra, *ours):
            what = f"duo's {_isa(name)} kernels" if _isa(name) else f"stock {name} kernels".replace(f" {PLAIN}", "")
            end = self.verdicts.get(name, "")
            if end == WORKS:
                off = name in self.extra and not self.extra_allowed
                said.append(f"{what}: work{'; not used, as libllama takes all or none' if off else ''}")
            elif end:
                mend = "" if _isa(name) else f"; to mend it: {rebuild(amx=name == AMX)}"
                said.append(f"{what}: {_how(end)}; not used{mend}")
            else:
                used = "" if name != AMX else "; not used"
                said.append(f"{what}: not tried ({self.not_tried}){used}")
        return said


def kind_of(isa: str) -> str:
    """What duo.placement.trial calls the products of duo's kernels for this instruction set."""
    return _OURS + isa


def _isa(kind: str) -> str:
    """The instruction set of a kind of duo's products; empty: it is a stock one."""
    return kind.removeprefix(_OURS) if kind.startswith(_OURS) else ""


def _best() -> str:
    return next(iter(_core.usable_kernels()), "")


def _how(end: str) -> str:
    if end == WRONG:
        return "give wrong products here"
    return f"do not finish here ({TIMEOUT_S:g} s)" if end == HANGS else f"crash here ({end})"
