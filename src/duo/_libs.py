"""The llama.cpp libraries: loaded once, and used only if duo was built with them.

They are llama-cpp-python's, or those inside a wheel (`build_advice.BUNDLE`), which is laid out as its package is.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from duo._openmp import unbound, wait_policy
from duo.build_advice import BUNDLE, is_bundled, package, rebuild


def library_dir() -> Path:
    """The folder of libllama: that of the wheel, else the one from which `import llama_cpp` loads it."""
    if is_bundled():
        return BUNDLE / "lib"
    override = os.environ.get("LLAMA_CPP_LIB_PATH")
    if override:
        return Path(override)
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise ImportError(f"llama-cpp-python is not installed; run {rebuild()}")
    return Path(spec.origin).parent / "lib"


def libllama() -> Path:
    if is_bundled():
        return library_dir() / "libduo-llama.so"
    return library_dir() / {"darwin": "libllama.dylib", "win32": "llama.dll"}.get(sys.platform, "libllama.so")


def libraries() -> list[Path]:
    """What must be loaded before the extension, in this order."""
    path = libllama()
    pictures = path.with_name(path.name.replace("llama", "mtmd"))
    return [path, *([pictures] if pictures.exists() else ())]


def release_of(folder: Path) -> str:
    """The release of the llama-cpp-python that these libraries belong to; empty: unknown.

    The file is read, not imported: `import llama_cpp` is slow, and LLAMA_CPP_LIB_PATH may name another folder.
    """
    try:
        text = (folder.parent / "__init__.py").read_text("utf-8", "replace")
    except OSError:
        return ""
    match = re.search(r"""^__version__ = ["']([^"']*)["']""", text, re.MULTILINE)
    return match[1] if match else ""


def reinstall() -> str:
    """The advice if duo and llama.cpp do not fit together."""
    return "install duo-llama again" if is_bundled() else f"install {package()} and build duo again"


def loading_advice() -> str:
    """If a library cannot be loaded."""
    return reinstall() if is_bundled() else f"run {rebuild()}"


def _refuse_another() -> None:
    """Raises ImportError: the loader would take functions from another llama.cpp in place of the wheel's."""
    if hasattr(ctypes.CDLL(None), "ggml_backend_reg_count"):
        raise ImportError(
            "this process has loaded another llama.cpp for all libraries (RTLD_GLOBAL), and duo has one of its own; "
            "load duo first: from duo import _core"
        )


def load_core() -> ModuleType:
    """The extension module, after the libllama and libmtmd that it must use. Raises ImportError if they do not fit.

    The order matters: without it the extension would load a second copy, with its own devices. A wheel's copy is its
    own, so its names are not for the whole process: llama_cpp may be in it, too.
    """
    path = libllama()
    wait_policy.set()
    if is_bundled():
        _refuse_another()
    with unbound():
        try:
            for file in libraries():
                ctypes.CDLL(str(file), mode=ctypes.RTLD_LOCAL if is_bundled() else ctypes.RTLD_GLOBAL)
        except OSError as e:
            raise ImportError(f"{path} could not be loaded ({e}); {loading_advice()}") from None
        core = import_module("duo._core")
    same, built, loaded = core.check_llama(release_of(library_dir()))
    if not same:
        vars(sys.modules["duo"]).pop("_core", None)  # the next import is checked again
        raise ImportError(f"duo was built for another llama.cpp ({built}) than {path} ({loaded}); {reinstall()}")
    return core
