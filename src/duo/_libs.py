"""The llama.cpp libraries: loaded once, from llama-cpp-python, and only if duo was built for them."""

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
    """The release of llama-cpp-python that these libraries belong to; empty if it is unknown.

    The file is read and not imported: `import llama_cpp` is slow, and LLAMA_CPP_LIB_PATH may name another folder.
    """
    try:
        text = (libraries.parent / "__init__.py").read_text("utf-8", "replace")
    except OSError:
        return ""
    match = re.search(r"""^__version__ = ["']([^"']*)["']""", text, re.MULTILINE)
    return match[1] if match else ""


def reinstall() -> str:
    """Advice for a duo that was built for another llama.cpp."""
    return f"install {package()} and build duo again"


def load_libraries() -> None:
    """Loads libllama before the extension does. A second copy from site-packages/lib would have devices of its own."""
    # An idle OpenMP team that spins for long starves the other model's team. One that never spins pays a system call at
    # each barrier. libgomp counts all teams of the process. If they have more threads than there are CPUs, as with two
    # models that take turns, it spins only 100 times, or 1000 under the policy "active" (libgomp/config/linux/wait.h,
    # env.c). That costs half the speed (benchmarks/README.md). libgomp reads both variables when it is loaded.
    if "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "active"
        os.environ["GOMP_SPINCOUNT"] = "2000"
        os.environ.setdefault("KMP_BLOCKTIME", "1")  # ms; under that policy LLVM's runtime would never sleep
    path = libllama()
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise ImportError(f"{path} could not be loaded ({e}); run {rebuild()}") from None
    from duo import _core

    same, built, loaded = _core.check_llama(release_of(library_dir()))
    if not same:
        raise ImportError(f"duo was built for another llama.cpp ({built}) than {path} ({loaded}); {reinstall()}")
