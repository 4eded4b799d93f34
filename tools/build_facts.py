"""What a build on this machine depends on, as lines: builds with the same lines can stand for each other.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path

from build_cache import BuildCache

ROOT = Path(__file__).resolve().parents[1]
_ADVICE = runpy.run_path(str(ROOT / "src" / "duo" / "build_advice.py"))
TIMEOUT_S = 60
# What compilers, CMake and scikit-build-core read. The launcher and the number of jobs change nothing.
_READ = re.compile(
    r"(CC|CXX|CUDACXX|HIPCXX|ASM|C(PP|XX|UDA)?FLAGS|CUDAARCHS|LDFLAGS|C(PLUS)?_?(INCLUDE_)?PATH|LIBRARY_PATH|CUDA_PATH"
    r"|CUDAToolkit_ROOT|CUDAHOSTCXX|NVCC_(PREPEND|APPEND)_FLAGS|VULKAN_SDK|Vulkan_ROOT|OpenMP_ROOT|COMPILER_PATH"
    r"|GCC_EXEC_PREFIX|MACOSX_DEPLOYMENT_TARGET|SDKROOT|PIP_CONFIG_SETTINGS|(CMAKE|SKBUILD|FORCE_CMAKE)(_\w+)?)"
)
_NOT_READ = re.compile(r"CMAKE_(BUILD_PARALLEL_LEVEL|\w+_COMPILER_LAUNCHER|COLOR_DIAGNOSTICS)")
_ARGUMENTS = re.compile(r"(CMAKE|SKBUILD)_\w+|PIP_CONFIG_SETTINGS")  # that can define variables of CMake
_FALSE = re.compile(r"(off|no?|false|0|ignore|(.*-)?notfound)?", re.IGNORECASE)  # all else switches something on
# What compiles a backend, and for which device. Builds with others are not kept: nobody knows what they depend on.
_ON_CPU = {
    "CPU", "RPC", "NATIVE", "OPENMP", "LLAMAFILE", "LTO", "CCACHE", "AVX", "AVX2", "AVX512", "FMA", "F16C", "BMI2",
}  # fmt: skip
_BACKENDS = {
    "CUDA": (("nvcc", "--version"), ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")),
    "VULKAN": (("glslc", "--version"),),
}


class UnknownFactsError(Exception):
    """What cannot be found out, so that nothing is kept."""


def facts_for(cache: BuildCache, what: str, find: Callable[[], list[str]]) -> list[str]:
    """What the build depends on; empty, and said: it is not kept."""
    if cache.fault:
        print(cache.fault)
    try:
        return find() if cache.folder is not None else []
    except UnknownFactsError as e:
        print(f"The build of {what} is not kept for other clones: {e}")
        return []


def llama_facts(requirement: str, environ: Mapping[str, str]) -> list[str]:
    """Of llama-cpp-python, whose code is compiled for this processor. Raises UnknownFactsError."""
    args = environ.get("CMAKE_ARGS", "")
    return [requirement, *_machine(args, environ, native=True), *_backends(environ)]


def extension_facts(environ: Mapping[str, str], sources: Iterable[Path]) -> list[str]:
    """Of duo's extension, which chooses its code at run time. Raises UnknownFactsError."""
    try:
        record = metadata.distribution("llama-cpp-python").read_text("RECORD") or ""
        pybind11 = metadata.version("pybind11")
    except metadata.PackageNotFoundError as e:
        raise UnknownFactsError(f"{e} is not installed") from None
    built = [line for line in record.splitlines() if ",sha256=" in line and ".dist-info/" not in line]
    return [
        f"llama {_sum(chr(10).join(sorted(built)).encode())}", f"pybind11 {pybind11}",
        *(f"{path.relative_to(ROOT)} {content(path)}" for path in sources),
        *_machine(environ.get("CMAKE_ARGS", ""), environ, native=False),
    ]  # fmt: skip


def content(path: Path) -> str:
    """A sum of a file, or of all files in a folder."""
    if path.is_file():
        return _sum(path.read_bytes())
    files = sorted(f for f in path.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    return _sum("\n".join(f"{f.relative_to(path)} {_sum(f.read_bytes())}" for f in files).encode())


def _machine(args: str, environ: Mapping[str, str], *, native: bool) -> list[str]:
    """The system, the interpreter, the compilers and what they are told."""
    told = {name: text for name, text in environ.items() if _ARGUMENTS.fullmatch(name)}
    if "CMAKE_TOOLCHAIN_FILE" in told or any("CMAKE_TOOLCHAIN_FILE" in text for text in told.values()):
        raise UnknownFactsError("a toolchain file chooses the compilers")
    for name, text in told.items():
        if name != "CMAKE_ARGS" and re.search(r"\bD?CMAKE_C(XX)?_COMPILER[:=]", text):
            raise UnknownFactsError(f"{name} chooses a compiler; choose it with CC and CXX, or in CMAKE_ARGS")
    lines = [f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}"]
    lines.append(f"{sys.implementation.cache_tag} {sysconfig.get_platform()} {sysconfig.get_config_var('EXT_SUFFIX')}")
    for name in sorted(environ):
        if _READ.fullmatch(name) and not _NOT_READ.fullmatch(name):
            lines.append(f"{name}={_without_place(environ[name])}")
    for language, name in (("c++", "CXX"), ("c", "C")):
        command = _ADVICE["compiler"](args, environ, name)
        lines.append(f"{language} {' '.join(command)} {_sum(_macros(command, language, native))}")
    return lines


def _without_place(text: str) -> str:
    """Another clone has the same files elsewhere. Raises UnknownFactsError."""

    def content_of(found: re.Match[str]) -> str:
        path = Path(found[0])
        if path == ROOT or not path.exists():
            raise UnknownFactsError(f"{path} is not a file or a folder of the sources")
        return content(path)

    return re.sub(re.escape(str(ROOT)) + r"[^\s'\";:,]*", content_of, text)


def switched_on(environ: Mapping[str, str]) -> list[str]:
    """What follows GGML_ in the options that are not false; of two values in one variable the last one counts."""
    found = {}
    for name in sorted(environ):
        if _ARGUMENTS.fullmatch(name):
            for option, value in re.findall(r"\bD?GGML_(\w+)(?::\w+)?=[\"']?([^\s;\"']*)", environ[name]):
                found[name, option] = value
    return sorted({option for (_, option), value in found.items() if not _FALSE.fullmatch(value)})


def _nvcc(environ: Mapping[str, str]) -> str | None:
    """As CMake chooses it."""
    for name in sorted(environ):
        named = re.search(r"\bD?CMAKE_CUDA_COMPILER(?::\w+)?=[\"']?([^\s;\"']+)", environ[name])
        if _ARGUMENTS.fullmatch(name) and named is not None:
            return named[1]
    try:
        words = shlex.split(environ.get("CUDACXX", ""))
    except ValueError:
        words = []
    return words[0] if words else None


def _macros(command: list[str], language: str, native: bool) -> bytes:
    """All that the compiler defines: its version, the C library's, and the features that it compiles for."""
    source = f"#include <{'cstddef' if language == 'c++' else 'stddef.h'}>\n#include <limits.h>\n".encode()
    for flags in (["-march=native"], ["-mcpu=native"], []) if native else ([],):
        found = _output([*command, *flags, "-dM", "-E", "-x", language, "-"], source) if command else b""
        if found:
            return found
    raise UnknownFactsError(f"the {language.upper()} compiler {' '.join(command)} does not say what it compiles for")


def _backends(environ: Mapping[str, str]) -> list[str]:
    """What compiles the backends that are switched on. Raises UnknownFactsError."""
    lines = []
    for name in switched_on(environ):
        if name not in _ON_CPU and name not in _BACKENDS:
            raise UnknownFactsError(f"what GGML_{name} depends on is not known")
        for program, *rest in _BACKENDS.get(name, ()):
            path = _nvcc(environ) if program == "nvcc" else None
            path = path or shutil.which(program) or shutil.which(program, path="/usr/local/cuda/bin")
            said = _output([path, *rest], b"") if path else b""
            if not said:
                raise UnknownFactsError(f"{program} does not say its version")
            lines.append(f"{program} {_sum(said)}")
    return lines


def _output(command: list[str], given: bytes) -> bytes:
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, ValueError, subprocess.SubprocessError):
        return b""
    return done.stdout if done.returncode == 0 else b""


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
