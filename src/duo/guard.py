"""What this process must not compute, because a process has died of it here.

A processor, or the virtual machine around it, may announce instructions and refuse them, and llama.cpp may have been built
by a compiler that breaks its AMX code (duo.build_advice). So before this process computes a product, a child does
(duo.trial), once for each build of libggml-cpu and duo on each machine; the finding is kept in the user's cache. The
extension module asks `ensure` before it loads a model, races kernels or serves devices.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

from duo import _core
from duo._libs import library_dir
from duo.build_advice import rebuild
from duo.errors import DuoError
from duo.remembered import recall, remember
from duo.trial import ABSENT, FAULTS, HANGS, LASTING, TIMEOUT_S, WORKS, WRONG, NotTriedError, try_products

PLAIN = "plain"
AMX = "AMX"  # not used untried: too many builds of it crash
N_MACHINES = 32


@dataclass(frozen=True)
class Finding:
    """Which kernels this process may use."""

    verdicts: Mapping[str, str] = field(default_factory=dict)  # kind of product -> WORKS, or how it failed; duo.trial
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
        if end != WRONG and end not in FAULTS:
            return ""
        return (
            f"llama.cpp's stock kernels {_how(end)}, so duo cannot compute on this machine; build llama-cpp-python on it: "
            f"{rebuild()}"
        )

    @property
    def warning(self) -> str:
        """What is not used although it is there, and how it is mended, in one line; empty: nothing."""
        said = []
        for name in self.extra:
            if (end := self.verdicts.get(name, WORKS)) != WORKS:
                said.append(f"stock {name} kernels {_how(end)} and are not used; to mend it: {rebuild(amx=name == AMX)}")
        if AMX in self.extra and AMX not in self.verdicts:
            said.append(f"stock AMX kernels are not used, as they could not be tried before ({self.not_tried})")
        if self.refused:
            ends = ", ".join(f"{name} {_how(self.verdicts[_kind(name)])}" for name in self.refused)
            said.append(f"of duo's kernels {ends}; {_best() or 'stock ones'} are used")
        return "; ".join(said)

    def lines(self) -> list[str]:
        """For a report: each kind in a line."""
        said = []
        ours = [name for name, end in self.verdicts.items() if _isa(name) and end != ABSENT]
        for name in (PLAIN, *self.extra, *ours):
            what = f"duo's {_isa(name)} kernels" if _isa(name) else f"stock {name} kernels".replace(f" {PLAIN}", "")
            end = self.verdicts.get(name, "")
            if end == WORKS:
                off = "" if name not in self.extra or self.extra_allowed else "; not used, as libllama takes all or none"
                said.append(f"{what}: work{off}")
            elif end:
                mend = "" if _isa(name) else f"; to mend it: {rebuild(amx=name == AMX)}"
                said.append(f"{what}: {_how(end)}; not used{mend}")
            else:
                used = "" if name != AMX else "; not used"
                said.append(f"{what}: not tried ({self.not_tried}){used}")
        return said


def _kind(isa: str) -> str:
    return f"duo {isa}"


def _isa(kind: str) -> str:
    """The instruction set of a kind of duo's products; empty: it is a stock one."""
    return kind.removeprefix("duo ") if kind.startswith("duo ") else ""


def _best() -> str:
    return next(iter(_core.usable_kernels()), "")


def _how(end: str) -> str:
    if end == WRONG:
        return "give wrong products here"
    return f"do not end here (in {TIMEOUT_S:g} s)" if end == HANGS else f"crash here ({end})"


# ---- what a finding is of


def cache_file() -> Path:
    return user_cache_path("duo") / "guard.json"


def _machine() -> str:
    """The processor's name, and a digest of what it announces."""
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part")
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = map(str.strip, line.partition(":"))
            if name in wanted:
                found.setdefault(name, value)
    name = found.get("model name") or platform.processor() or platform.machine()
    return f"{name} {_digest(repr(sorted(found.items())).encode())}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _libraries() -> list[Path]:
    """Every libggml-cpu that is loaded, or that would be."""
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        paths = {line.split(maxsplit=5)[5] for line in maps if "ggml-cpu" in line}
        if paths:
            return sorted(Path(p) for p in paths if "ggml-cpu" in Path(p).name)
    return sorted(p for p in library_dir().glob("*ggml-cpu*") if not p.is_symlink())


def _content(path: Path) -> str:
    try:
        return _digest(path.read_bytes())
    except OSError:  # replaced while it is in use
        return "gone"


@cache
def build() -> str:
    """Which libggml-cpu this process uses: a digest of its content."""
    return " ".join(_content(p) for p in _libraries())


def key() -> str:
    """Which machine, libggml-cpu and duo a finding is of."""
    return " | ".join([_machine(), f"libggml-cpu {build()}", f"duo {_content(Path(_core.__file__))}"])


# ---- the finding


def _ask(known: Mapping[str, str]) -> Finding:
    """Tries what has no verdict yet."""
    verdicts = dict(known)
    extra = tuple(_core.extra_buffers())
    candidates = _core.usable_kernels()
    while True:
        refused = Finding(verdicts).refused
        ours = [_kind(isa) for isa in candidates if isa not in refused][:1]
        missing = [name for name in (PLAIN, *extra, *ours) if name not in verdicts]
        if not missing:
            return Finding(verdicts, extra)
        if Finding(verdicts).obstacle:
            return Finding(verdicts, extra, "nothing can be computed here")
        try:
            new = try_products(verdicts, refused)
        except NotTriedError as e:
            return Finding(verdicts, extra, str(e))
        if not any(name in new for name in missing):
            return Finding(verdicts, extra, f"the child process did not try {missing[0]}")
        verdicts |= new


class _Guard:
    """The finding of this process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finding: Finding | None = None
        self._told = False

    def find(self, *, again: bool = False) -> Finding:
        with self._lock:
            if self._finding is None or again:
                self._finding = self._look(again)
                _core.allow_extra_buffers(self._finding.extra_allowed)
                _core.refuse_kernels(self._finding.refused)
            return self._finding

    def _look(self, again: bool) -> Finding:
        _core.refuse_kernels([])  # as the processor announces them
        where = key()
        entry = {} if again else recall(cache_file()).get(where)
        known = {k: v for k, v in entry.items() if v in LASTING} if isinstance(entry, dict) else {}
        finding = _ask(known)
        lasting = {k: v for k, v in finding.verdicts.items() if v in LASTING}
        if lasting != known:
            remember(cache_file(), where, lasting, N_MACHINES)
        return finding

    def tell(self, say: Callable[[str], None]) -> None:
        warning = self.find().warning
        with self._lock:
            told, self._told = self._told, True
        if warning and not told:
            say(warning)


_guard = _Guard()


def find(*, again: bool = False) -> Finding:
    """What was found here, by a child that is started if need be (a tenth of a second). again: whatever was found before.
    From then on this process keeps to it."""
    return _guard.find(again=again)


def ensure() -> None:
    """As find. Raises DuoError where nothing can be computed on this CPU."""
    if obstacle := find().obstacle:
        raise DuoError(obstacle)


def tell(say: Callable[[str], None] = logging.getLogger("duo").warning) -> None:
    """Hands `say` what is not used and how it is mended, if there is such a thing; the first time in a process alone."""
    _guard.tell(say)


def stock_name() -> str:
    """The stock kernels that this process uses, for records of their speed."""
    return f"libggml-cpu {build()}" + ("" if find().extra_allowed else ", plain memory alone")
