"""What wheels are made for: a processor, and the glibc of an older Debian."""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from wheel_programs import BUILD, ROOT, run, unpack_debian

OWN = Path(__file__).with_name("wheel")
ADVICE = runpy.run_path(str(ROOT / "src" / "duo" / "build_advice.py"))
OLD_DEBIAN = "bullseye"  # glibc 2.31


class Target(NamedTuple):
    """A kind of processor."""

    machine: str  # as wheels name it
    debian: str  # as Debian names it
    compilers: str  # what the names of GCC's programs begin with
    headers: Path  # those of GCC's libstdc++ are in its c++

    @property
    def triplet(self) -> str:
        return f"{self.machine}-linux-gnu"

    @property
    def folder(self) -> Path:
        return BUILD / self.machine

    @property
    def sysroot(self) -> Path:
        return self.folder / "sysroot"

    @property
    def libraries(self) -> Path:
        return self.sysroot / "usr" / "lib" / self.triplet

    @property
    def is_foreign(self) -> bool:
        """Whether a cross compiler makes it."""
        return bool(self.compilers)


TARGETS = {
    "x86_64": Target("x86_64", "amd64", "", Path("/usr/include")),
    "aarch64": Target("aarch64", "arm64", "aarch64-linux-gnu-", Path("/usr/aarch64-linux-gnu/include")),
}


def target_for(machine: str) -> Target:
    """Raises SystemExit: it cannot be made here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SystemExit("make_wheel: wheels are made on x86-64 Linux only; elsewhere install from the sources")
    target = TARGETS[machine]
    if shutil.which(f"{target.compilers}g++") is None:
        raise SystemExit(f"make_wheel: {target.compilers}g++ is missing; run apt-get install g++-{target.triplet}")
    return target


def _only(folders: list[Path]) -> str:
    return " ".join(["-nostdinc", *(f"-isystem {f}" for f in folders)])


def _include_flags(target: Target) -> tuple[str, str]:
    """For C and for C++. Debian's cross compilers prefer the headers of this machine's glibc to those of a sysroot."""
    if not target.is_foreign:
        return "", ""
    own = run(f"{target.compilers}gcc", "-print-file-name=include", quiet=True).strip()
    release = run(f"{target.compilers}gcc", "-dumpversion", quiet=True).strip()
    include = target.sysroot / "usr" / "include"
    c = [Path(own), include / target.triplet, include]
    cxx = [include / "c++" / release / part for part in ("", target.triplet, "backward")]
    return _only(c), _only([*cxx, *c])


def _make_sysroot(target: Target) -> None:
    """Headers and libraries of an older Debian, and links to what the compiler has of its own."""
    folder, libraries = target.sysroot, target.libraries
    include = folder / "usr" / "include"
    if (libraries / "libgcc_s.so").exists():
        return
    unpack_debian(OLD_DEBIAN, target.debian, "libc6-dev,libgomp1,libvulkan1", folder)
    for link in list(folder.rglob("*")):
        if link.is_symlink() and os.readlink(link).startswith("/"):  # they would lead to this machine's libraries
            to = folder / os.readlink(link).lstrip("/")
            link.unlink()
            link.symlink_to(os.path.relpath(to, link.parent))
    (include / "c++").symlink_to(target.headers / "c++")
    for headers in Path("/usr/include/x86_64-linux-gnu").iterdir():
        # Debian's pyconfig.h: that of x86-64 says the same of an ARM with 64 bits.
        if headers.name.startswith("python3") or (headers.name == "c++" and not target.is_foreign):
            (include / target.triplet / headers.name).symlink_to(headers)
    (libraries / "libgomp.so").symlink_to("libgomp.so.1")
    # As GCC's own: what the old libgcc_s lacks is in the new libgcc.a.
    (libraries / "libgcc_s.so").write_text(f"GROUP ( /lib/{target.triplet}/libgcc_s.so.1 -lgcc )\n")


def _compile_older_glibc(target: Target) -> None:
    """Each time: it takes no time, and a sysroot outlasts changes of the source."""
    folder, libraries = target.sysroot, target.libraries
    compiler = [f"{target.compilers}gcc", *_include_flags(target)[0].split(), f"--sysroot={folder}"]
    run(*compiler, "-c", "-O2", "-fPIC", OWN / "older_glibc.c", "-o", libraries / "older_glibc.o")


def _toolchain(target: Target, env: Mapping[str, str]) -> str:
    """All that decides how a file is compiled and linked for the target."""
    sources = [(OWN / name).read_text() for name in ("older_glibc.cmake", "older_glibc.c")]
    compiler = run(f"{target.compilers}g++", "--version", quiet=True)
    variables = [f"{name}={env[name]}\n" for name in sorted(env) if name.startswith(("DUO_SYSROOT", "DUO_WHEEL_"))]
    return "".join([*variables, compiler, *sources])


def renew_builds(folders: Iterable[Path], toolchain: str, record: Path) -> None:
    """Lets CMake configure these builds anew if `record` names another toolchain or none: CMake keeps the flags that it
    read first. Object files stay, and ninja compiles those whose command has changed."""
    if record.is_file() and record.read_text() == toolchain:
        return
    for folder in folders:
        (folder / "CMakeCache.txt").unlink(missing_ok=True)
        for compilers in folder.glob("CMakeFiles/[0-9]*"):  # what this release of CMake knows of them
            shutil.rmtree(compilers)
        for library in folder.rglob("*.so"):  # no rule of ninja knows that older_glibc.o is in it
            library.unlink()
    record.write_text(toolchain)


def compiler_environment(target: Target) -> dict[str, str]:
    """For CMake: the toolchain and what it reads; the programs of this environment first."""
    _make_sysroot(target)
    _compile_older_glibc(target)
    lossy = ADVICE["loses_tile_stores"]((f"{target.compilers}g++",))
    c, cxx = _include_flags(target)
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CMAKE_TOOLCHAIN_FILE": str(OWN / "older_glibc.cmake"),
        "CMAKE_ARGS": "",
        "CMAKE_GENERATOR": "Ninja",
        "DUO_SYSROOT": str(target.sysroot),
        "DUO_WHEEL_MACHINE": target.machine,
        "DUO_WHEEL_COMPILERS": target.compilers,
        "DUO_WHEEL_C_FLAGS": c,
        "DUO_WHEEL_FLAGS": " ".join(filter(None, [cxx, ADVICE["KEEP_STORES"] if lossy else ""])),
    }
    builds = [target.folder / "llama", *BUILD.glob(f"duo-*_{target.machine}")]
    renew_builds(builds, _toolchain(target, env), target.folder / "toolchain.txt")
    return env


def names_for(target: Target, python: str) -> dict[str, str]:
    """How scikit-build-core and pybind11 name the wheel and the extension for an interpreter ("3.11") of a foreign
    target, which they cannot ask."""
    if not target.is_foreign:
        return {}
    soabi = f"cpython-{python.replace('.', '')}-{target.triplet}"
    return {"_PYTHON_HOST_PLATFORM": f"linux-{target.machine}", "SETUPTOOLS_EXT_SUFFIX": f".{soabi}.so"}
