"""How llama-cpp-python is to be built here: its CMAKE_ARGS, and the command that duo advises.

Standard library only, and nothing of duo: tools/cmake_args.py and csrc/llama.cmake run this file before there is a duo.

Older GCCs (12.2 is one) tell the optimiser that `_tile_loadconfig` (amxtileintrin.h) reads eight bytes, where the
instruction reads 64. llama.cpp's AMX code (ggml-cpu/amx/mmq.cpp) fills a local struct for it; the stores to its rest
are removed as dead and the processor gets garbage. -fno-dse keeps them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

DISTRIBUTION = "duo-llama"
DEFAULT = "-DGGML_RPC=on"
KEEP_STORES = "-fno-dse"
TIMEOUT_S = 60
# The one of them all: CMAKE_CXX_FLAGS_RELEASE and the like are added to it.
_OWN_FLAGS = re.compile(r"(?<!\w)(?:-D\s*)?CMAKE_CXX_FLAGS(?::\w+)?=")


def compiler(cmake_args: str, environ: Mapping[str, str]) -> list[str]:
    """The C++ compiler that CMake will take, with its arguments; none if it finds none."""
    given = re.search(r"-DCMAKE_CXX_COMPILER(?::\w+)?=([^\s'\"]+)", cmake_args)
    if given is not None:
        return [given[1]]
    named = environ.get("CXX", "")
    try:
        command = shlex.split(named)
    except ValueError:
        command = [named]
    if command:
        return command
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    return [] if found is None else [found]


@cache
def loses_tile_stores(command: tuple[str, ...]) -> bool | None:
    """Does this compiler have the fault? Looks at its header, not at its version. None: it cannot be run."""
    if not command:
        return None
    try:
        done = subprocess.run(
            [*command, "-x", "c++", "-E", "-mamx-tile", "-"],
            input=b"#include <immintrin.h>\n", capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    # A compiler for another processor knows neither the option nor the header.
    text = done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
    body = re.search(r"\b_tile_loadconfig\s*\([^)]*\)\s*\{(.*?)\}", text, re.DOTALL)
    return body is not None and "ldtilecfg" in body[1] and re.search(r"\*\s*\(\(const void \*\*\)", body[1]) is not None


def cmake_args(environ: Mapping[str, str], *, unknown: bool = False) -> str:
    """CMAKE_ARGS to build llama-cpp-python with: the user's own, or the default, and -fno-dse where it is needed.

    A user who gives CMAKE_CXX_FLAGS keeps them as they are (`missing` says what they lack). unknown: is the flag needed
    where the compiler cannot be asked?
    """
    given = environ.get("CMAKE_ARGS", "").strip() or DEFAULT
    if _OWN_FLAGS.search(given) or not _needs_flag(given, environ, unknown):
        return given
    flags = f"{environ.get('CXXFLAGS', '').strip()} {KEEP_STORES}".strip()  # CMake takes CXXFLAGS only without -D
    return f"{given} {shlex.quote(f'-DCMAKE_CXX_FLAGS={flags}')}"


def missing(environ: Mapping[str, str]) -> str:
    """What is to be said of the user's CMAKE_CXX_FLAGS; empty: nothing."""
    given = environ.get("CMAKE_ARGS", "")
    if not _OWN_FLAGS.search(given) or not _needs_flag(given, environ, False):
        return ""
    return (
        f"your CMAKE_CXX_FLAGS lack {KEEP_STORES}: this compiler loses stores of llama.cpp's AMX code, "
        "which then crashes on processors with AMX (duo notices and does without)"
    )


def _needs_flag(given: str, environ: Mapping[str, str], unknown: bool) -> bool:
    in_effect = given if _OWN_FLAGS.search(given) else f"{given} {environ.get('CXXFLAGS', '')}"
    if KEEP_STORES in _words(in_effect):
        return False
    lost = loses_tile_stores(tuple(compiler(given, environ)))
    return unknown if lost is None else lost


def _words(args: str) -> list[str]:
    """The single words of a CMAKE_ARGS, those inside quotes too."""
    return re.split(r"[\s'\"=]+", args)


def package() -> str:
    """The llama-cpp-python that duo is made for, as pip takes it: pyproject.toml says it, and what pip made of that."""
    from importlib import metadata  # late: it takes a while, and only errors need it

    source = next((f.parent for f in Path(__file__).parents if f.name == "src"), None)
    try:
        if source is not None and (source / "csrc").is_dir():  # not installed, or not as a copy
            lines = re.findall(r'^ +"(.+)",?$', (source / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
        else:
            lines = metadata.requires(DISTRIBUTION) or []
    except (OSError, metadata.PackageNotFoundError):
        lines = []
    return next((line for line in lines if line.startswith("llama-cpp-python==")), "llama-cpp-python")


def rebuild(*, amx: bool = False) -> str:
    """The command that builds llama-cpp-python anew, with the user's own CMAKE_ARGS and what they lack. amx: its AMX
    code crashes."""
    try:
        words = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    except ValueError:  # a quotation mark without its twin
        words = []
    words += [] if DEFAULT in words else [DEFAULT]
    if _needs_flag(shlex.join(words), os.environ, amx):
        words = [f"{word} {KEEP_STORES}" if _OWN_FLAGS.search(word) else word for word in words]
    arguments = cmake_args({**os.environ, "CMAKE_ARGS": shlex.join(words)}, unknown=amx)
    gpu = "" if "GGML_CUDA" in arguments else " (add -DGGML_CUDA=on for NVIDIA GPUs)"
    return f'CMAKE_ARGS="{arguments}" pip install --force-reinstall --no-cache-dir {package()}{gpu}'


if __name__ == "__main__":
    print(rebuild())
