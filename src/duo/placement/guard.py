"""Keeps this process from computations that crash on this machine.

A processor, or the virtual machine around it, may announce instructions and then refuse them. A compiler may have
broken llama.cpp's AMX code (duo.build_advice). So a child process computes products first (duo.placement.trial), once
for each build of libggml-cpu and duo on each machine. The result is kept in the user's cache. The extension module
calls `ensure` before it loads a model, races kernels or serves devices.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path

from duo import _core
from duo._libs import library_dir
from duo.errors import DuoError
from duo.placement.finding import PLAIN, Finding, kind_of
from duo.placement.trial import LASTING, NotTriedError, try_products
from duo.support.cache_folder import cache_folder
from duo.support.home_process import PerProcess
from duo.support.json_cache import recall, remember

N_MACHINES = 32
GONE = "gone"  # the library was replaced while it was in use


def _log(message: str) -> None:
    import logging

    logging.getLogger("duo").warning(message)


def cache_file() -> Path:
    return cache_folder() / "guard.json"


def _machine() -> str:
    """The processor's name, and a digest of what it announces."""
    fields = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part")
    values: dict[str, str] = {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in takewhile(str.strip, file):  # the first processor only
            name, _, value = map(str.strip, line.partition(":"))
            if name in fields:
                values[name] = value
    name = values.get("model name", "")
    if not name:
        import platform

        name = platform.processor() or platform.machine()
    return f"{name} {_digest(repr(sorted(values.items())).encode())}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def libraries() -> list[Path]:
    """Every libggml-cpu that is loaded, or that would be loaded."""
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        paths = {line.split(maxsplit=5)[5] for line in maps if "ggml-cpu" in line}
        if paths:
            loaded = sorted(Path(p) for p in paths if "ggml-cpu" in Path(p).name)
            own = library_dir().resolve()  # llama_cpp may be in the process beside a wheel
            return [p for p in loaded if p.parent == own] or loaded
    return sorted(p for p in library_dir().glob("*ggml-cpu*") if not p.is_symlink())


def _content(path: Path) -> str:
    try:
        return _digest(path.read_bytes())
    except OSError:
        return GONE


@cache
def build() -> str:
    """A digest of the libggml-cpu that this process uses."""
    return " ".join(_content(p) for p in libraries())


def is_build_known() -> bool:
    """Whether the build can be identified. If not, results must not be kept: nobody could say what they belong to."""
    return GONE not in build()


def key() -> str:
    """Identifies the machine, the libggml-cpu and the duo of a finding."""
    return " | ".join([_machine(), f"libggml-cpu {build()}", f"duo {_content(Path(_core.__file__))}"])


# ---- the finding


def _ask(cached: Mapping[str, str]) -> Finding:
    """Tries the kinds that have no verdict yet."""
    verdicts = dict(cached)
    extra = tuple(dict.fromkeys(_core.extra_buffers()))
    candidates = _core.usable_kernels()
    while True:
        refused = Finding(verdicts).refused
        next_kind = [kind_of(isa) for isa in candidates if isa not in refused][:1]
        missing = [name for name in (PLAIN, *extra, *next_kind) if name not in verdicts]
        if not missing:
            return Finding(verdicts, extra)
        if Finding(verdicts).obstacle:
            return Finding(verdicts, extra, "this CPU cannot compute anything")
        try:
            new = try_products(verdicts, refused)
        except NotTriedError as e:
            return Finding(verdicts, extra, str(e))
        if not any(name in new for name in missing):
            return Finding(verdicts, extra, f"the child process did not try {missing[0]}")
        verdicts |= new


class _Guard:
    """The finding of this process. Every method may be called from any thread."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close a Duo at any point, and closing calls find.
        self._lock = PerProcess(threading.RLock)
        self._finding: Finding | None = None
        self._warned = False

    def find(self, *, refresh: bool = False) -> Finding:
        with self._lock():
            if self._finding is None or refresh:
                self._finding = self._look(refresh)
                _core.allow_extra_buffers(self._finding.extra_allowed)
                _core.refuse_kernels(self._finding.refused)
            return self._finding

    def _look(self, refresh: bool) -> Finding:
        _core.refuse_kernels([])  # all that the processor announces
        where = key()
        entry = {} if refresh or not is_build_known() else recall(cache_file()).get(where)
        cached = {k: v for k, v in entry.items() if v in LASTING} if isinstance(entry, dict) else {}
        finding = _ask(cached)
        lasting = {k: v for k, v in finding.verdicts.items() if v in LASTING}
        if lasting != cached and is_build_known():
            remember(cache_file(), where, lasting, N_MACHINES)
        return finding

    def tell(self, say: Callable[[str], None]) -> None:
        warning = self.find().warning
        with self._lock():
            warned, self._warned = self._warned, True
        if warning and not warned:
            say(warning)


_guard = _Guard()


def find(*, refresh: bool = False) -> Finding:
    """The finding of a child process, which is started (a tenth of a second) if nothing is known, or if `refresh`.

    From then on this process acts on it, except that duo's instruction set is chosen only once, at its first use.
    """
    return _guard.find(refresh=refresh)


def ensure() -> None:
    """Like find, but raises DuoError if this CPU cannot compute anything."""
    if obstacle := find().obstacle:
        raise DuoError(obstacle)


def tell(say: Callable[[str], None] = _log) -> None:
    """Passes the warning about unused kernels to `say`, if there is one; once per process."""
    _guard.tell(say)


def stock_name() -> str:
    """Identifies the stock kernels that this process uses, for records of their speed."""
    return f"libggml-cpu {build()}" + ("" if find().extra_allowed else ", plain memory alone")
