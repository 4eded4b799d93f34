"""The llama.cpp libraries of llama-cpp-python: loaded once, and used only if duo was built with them."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from duo._openmp import set_wait_policy
from duo.build_advice import package, rebuild


def library_dir() -> Path:
    """The folder from which `import llama_cpp` loads libllama."""
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
    """The release of the llama-cpp-python that these libraries belong to; empty: unknown.

    The file is read, not imported: `import llama_cpp` is slow, and LLAMA_CPP_LIB_PATH may name another folder.
    """
    try:
        text = (libraries.parent / "__init__.py").read_text("utf-8", "replace")
    except OSError:
        return ""
    match = re.search(r"""^__version__ = ["']([^"']*)["']""", text, re.MULTILINE)
    return match[1] if match else ""


def reinstall() -> str:
    """The advice if duo and llama.cpp do not fit together."""
    return f"install {package()} and build duo again"


def load_core() -> ModuleType:
    """The extension module, after the libllama that it must use. Raises ImportError if the two do not fit.

    The order matters: without it the extension would load a second copy, with its own devices.
    """
    path = libllama()
    set_wait_policy()
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise ImportError(f"{path} could not be loaded ({e}); run {rebuild()}") from None
    core = import_module("duo._core")
    same, built, loaded = core.check_llama(release_of(library_dir()))
    if not same:
        vars(sys.modules["duo"]).pop("_core", None)  # the next import is checked again
        raise ImportError(f"duo was built for another llama.cpp ({built}) than {path} ({loaded}); {reinstall()}")
    return core
