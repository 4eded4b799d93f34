"""How to build llama-cpp-python on this machine: its CMAKE_ARGS, and the command that duo advises.

This file uses the standard library only: tools/cmake_args.py and csrc/llama.cmake run it before duo is built.

Older GCCs (such as 12.2) tell the optimiser that `_tile_loadconfig` (amxtileintrin.h) reads eight bytes, but the
instruction reads 64. llama.cpp's AMX code (ggml-cpu/amx/mmq.cpp) fills a local struct for it. The compiler removes the
stores to the other 56 bytes as dead, and the processor gets garbage. -fno-dse keeps those stores.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

DISTRIBUTION = "duo-llama"
BUNDLE = Path(__file__).with_name("llama_cpp")  # in a wheel that has llama.cpp inside (tools/make_wheel.py)
DEFAULT = "-DGGML_RPC=on"
KEEP_STORES = "-fno-dse"
TIMEOUT_S = 60
# Only this variable: CMake adds CMAKE_CXX_FLAGS_RELEASE and the like to it.
_OWN_FLAGS = re.compile(r"(?<!\w)(?:-D\s*)?CMAKE_CXX_FLAGS(?::\w+)?=")


_USUAL = {"CXX": ("c++", "g++", "clang++"), "C": ("cc", "gcc", "clang")}


def compiler(cmake_args: str, environ: Mapping[str, str], language: str = "CXX") -> list[str]:
    """The compiler that CMake will use, with its arguments; empty if there is none. language: CXX or C."""
    import shutil

    match = re.search(rf"-DCMAKE_{language}_COMPILER(?::\w+)?=([^\s'\"]+)", cmake_args)
    if match is not None:
        return [match[1]]
    named = environ.get("CC" if language == "C" else "CXX", "")
    try:
        command = shlex.split(named)
    except ValueError:
        command = [named]
    if command:
        return command
    path = next(filter(None, map(shutil.which, _USUAL[language])), None)
    return [] if path is None else [path]


@cache
def loses_tile_stores(command: tuple[str, ...]) -> bool | None:
    """Whether this compiler has the fault, judged by its header and not by its version. None: it cannot be run."""
    import subprocess

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
    """CMAKE_ARGS to build llama-cpp-python with: the user's own or the default, plus -fno-dse where it is needed.

    CMAKE_CXX_FLAGS that the user gives stay as they are (`missing` says what they lack). unknown: whether to add the
    flag if the compiler cannot be run.
    """
    args = environ.get("CMAKE_ARGS", "").strip() or DEFAULT
    if _OWN_FLAGS.search(args) or not _needs_flag(args, environ, unknown):
        return args
    # CMake reads CXXFLAGS only if -D is not given.
    flags = f"{environ.get('CXXFLAGS', '').strip()} {KEEP_STORES}".strip()
    return f"{args} {shlex.quote(f'-DCMAKE_CXX_FLAGS={flags}')}"


def missing(environ: Mapping[str, str]) -> str:
    """A warning about the user's CMAKE_CXX_FLAGS; empty if they are fine."""
    args = environ.get("CMAKE_ARGS", "")
    if not _OWN_FLAGS.search(args) or not _needs_flag(args, environ, False):
        return ""
    return (
        f"your CMAKE_CXX_FLAGS lack {KEEP_STORES}: this compiler loses stores of llama.cpp's AMX code, "
        "which then crashes on processors with AMX (duo notices this and does not use that code)"
    )


def _needs_flag(args: str, environ: Mapping[str, str], unknown: bool) -> bool:
    in_effect = args if _OWN_FLAGS.search(args) else f"{args} {environ.get('CXXFLAGS', '')}"
    if KEEP_STORES in _words(in_effect):
        return False
    lost = loses_tile_stores(tuple(compiler(args, environ)))
    return unknown if lost is None else lost


def _words(args: str) -> list[str]:
    """The words of a CMAKE_ARGS, including those inside quotes."""
    return re.split(r"[\s'\"=]+", args)


def is_bundled() -> bool:
    """Whether this duo has a llama.cpp of its own."""
    return (BUNDLE / "lib").is_dir()


def package() -> str:
    """The requirement on llama-cpp-python, for pip: from pyproject.toml, or from the installed package's metadata."""
    from importlib import metadata  # imported late: it is slow, and only errors need it

    source = next((f.parent for f in Path(__file__).parents if f.name == "src"), None)
    try:
        if source is not None and (source / "csrc").is_dir():  # a checkout, or an editable installation
            lines = re.findall(r'^ +"(.+)",?$', (source / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
        else:
            lines = metadata.requires(DISTRIBUTION) or []
    except (OSError, metadata.PackageNotFoundError):
        lines = []
    requirement = next((line for line in lines if line.startswith("llama-cpp-python==")), "llama-cpp-python")
    return requirement.partition(";")[0].strip()  # a wheel has it as an extra


def rebuild(*, amx: bool = False) -> str:
    """The command that builds llama-cpp-python again, with the user's own CMAKE_ARGS and what they lack. amx: the AMX
    code of the present build crashes."""
    try:
        words = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    except ValueError:  # unbalanced quotation marks
        words = []
    words += [] if DEFAULT in words else [DEFAULT]
    if _needs_flag(shlex.join(words), os.environ, amx):
        words = [f"{word} {KEEP_STORES}" if _OWN_FLAGS.search(word) else word for word in words]
    arguments = cmake_args({**os.environ, "CMAKE_ARGS": shlex.join(words)}, unknown=amx)
    gpu = "" if "GGML_CUDA" in arguments else " (add -DGGML_CUDA=on for NVIDIA GPUs)"
    if is_bundled():  # its llama.cpp cannot be exchanged
        return f'CMAKE_ARGS="{arguments}" make demo in a clone of duo, in place of this wheel{gpu}'
    return f'CMAKE_ARGS="{arguments}" pip install --force-reinstall --no-cache-dir {package()}{gpu}'


if __name__ == "__main__":
    print(rebuild())
