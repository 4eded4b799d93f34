"""The llama.cpp libraries: loaded once, from llama-cpp-python, and only if they are the ones duo was built with."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from duo.build_advice import package, rebuild


def library_dir() -> Path:
    """The folder whose libllama `import llama_cpp` loads."""
    override = os.environ.get("LLAMA_CPP_LIB_PATH")
    if override:
        return Path(override)
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise ImportError(f"llama-cpp-python is not installed; run {rebuild()}")
    return Path(spec.origin).parent / "lib"


def libllama() -> Path:
    return library_dir() / {"darwin": "libllama.dylib", "win32": "llama.dll"}.get(sys.platform, "libllama.so")


def release_of(libraries: Path) -> str:
    """The release of the llama-cpp-python whose libraries these are; empty: not known.

    Read, not imported: `import llama_cpp` takes long, and another folder may be meant (LLAMA_CPP_LIB_PATH).
    """
    try:
        text = (libraries.parent / "__init__.py").read_text("utf-8", "replace")
    except OSError:
        return ""
    match = re.search(r"""^__version__ = ["']([^"']*)["']""", text, re.MULTILINE)
    return match[1] if match else ""


def reinstall() -> str:
    """What to do where duo and llama.cpp do not fit each other."""
    return f"install {package()} and build duo again"


def load_libraries() -> None:
    """Loads libllama before the extension does: a second copy from site-packages/lib would have its own devices."""
    # An idle OpenMP team that spins for long starves the other model's; one that never spins pays a system call at each
    # barrier. libgomp counts all teams of the process: with more threads than CPUs, as with two models that take turns,
    # it spins only 100 times, 1000 where the policy is "active" (libgomp/config/linux/wait.h, env.c). Half the speed
    # hangs on that (benchmarks/README.md). It reads both once, when it is loaded.
    if "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "active"
        os.environ["GOMP_SPINCOUNT"] = "2000"
        os.environ.setdefault("KMP_BLOCKTIME", "1")  # ms; LLVM's runtime would never sleep under that policy
    path = libllama()
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise ImportError(f"{path} could not be loaded ({e}); run {rebuild()}") from None
    from duo import _core

    same, built, loaded = _core.check_llama(release_of(library_dir()))
    if not same:
        raise ImportError(f"duo was built for another llama.cpp ({built}) than {path} ({loaded}); {reinstall()}")
