"""Makes duo_llama-*.whl with llama.cpp inside, in dist/: no compiler and no llama-cpp-python are needed to install it.

    python tools/make_wheel.py [--vulkan] [--cuda] [--machine aarch64] [PYTHON ...]

PYTHON: an interpreter each; without: the one that runs this. It runs on x86-64 Linux, and makes wheels for it or, with
--machine aarch64 and a cross compiler, for 64-bit ARM. It takes llama.cpp from the sdist of the llama-cpp-python that
pyproject.toml names, and an old glibc from Debian (mmdebstrap), so that the wheel runs on older systems, too. `make
wheel` calls it in an environment that has what it needs. Everything is kept in build/wheel; a second run compiles what
has changed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import wheel_cuda
from wheel_metadata import wheel_metadata
from wheel_programs import BUILD, ROOT, progress, run
from wheel_target import ADVICE, OWN, TARGETS, Target, compiler_environment, names_for, target_for
from wheel_vulkan import LOADER, vulkan_arguments

DIST = ROOT / "dist"
MAX_MB = 60
MAX_MB_CUDA = 100  # as much as the package index takes


def llama_sources() -> Path:
    """The unpacked sdist of llama-cpp-python."""
    package: str = ADVICE["package"]()
    folder = BUILD / package.replace("==", "-").replace("-python", "_python").replace("llama-cpp", "llama_cpp")
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
        run(*pip, "--no-binary", ":all:", "--no-build-isolation", "-d", BUILD, package)
        with tarfile.open(f"{folder}.tar.gz") as sdist:
            sdist.extractall(BUILD / "unpacked", filter="tar")
        (BUILD / "unpacked" / folder.name).rename(folder)
    return folder


def bundle(target: Target, env: Mapping[str, str], plugins: Sequence[str]) -> Path:
    """The folder for DUO_LLAMA_BUNDLE: llama.cpp, built once for all interpreters. plugins: arguments for CMake."""
    build, folder = target.folder / "llama", target.folder / "bundle"
    source = f"-DDUO_LLAMA_SOURCE={llama_sources()}/vendor/llama.cpp"
    run("cmake", "-S", OWN, "-B", build, source, *plugins, env=env, quiet=True)
    progress("llama.cpp", "cmake", "--build", build, env=env)
    shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--strip", "--prefix", folder, env=env, quiet=True)
    notice = target.sysroot / "usr" / "share" / "doc" / "libgomp1" / "copyright"
    shutil.copy(notice.resolve(), folder / "llama_cpp" / "LICENSE.libgomp")
    return folder


def version_of(python: str) -> str:
    return run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", quiet=True).strip()


def build_tools(python: str) -> Path:
    """An interpreter that can build duo: the given one, in an environment of its own."""
    folder = BUILD / f"python{version_of(python)}"
    if not (folder / "done").exists():
        run(python, "-m", "venv", folder)
        pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        run(*pip, "pip>=23.1", "scikit-build-core>=0.11", "pybind11>=3.0")
        (folder / "done").touch()
    return folder / "bin" / "python"


def bare_wheel(target: Target, python: str, folder: Path, env: Mapping[str, str]) -> Path:
    """duo with the bundle, as the build backend makes it."""
    out = target.folder / "bare"
    shutil.rmtree(out, ignore_errors=True)
    pip = [build_tools(python), "-m", "pip", "--disable-pip-version-check", "wheel", "-v", "--no-build-isolation"]
    settings = [f"cmake.define.DUO_LLAMA_BUNDLE={folder}", "build-dir=build/wheel/duo-{wheel_tag}"]
    settings.append("cmake.define.DUO_FAST_BUILD=OFF")  # so each file shows whether it includes what it uses
    if target.is_foreign:
        settings.append("cmake.define.PYBIND11_USE_CROSSCOMPILING=ON")
    chosen = [word for s in settings for word in ("-C", s)]
    named = {**env, **names_for(target, version_of(python))}
    progress("duo", *pip, "--no-deps", "-w", out, *chosen, ROOT, env=named)
    return next(out.glob("*.whl"))


def finished(target: Target, bare: Path, env: Mapping[str, str], extras: Mapping[str, str]) -> Path:
    """The wheel as it is distributed: its metadata, and libgomp inside. extras: what further ones need."""
    changed = target.folder / bare.name
    with zipfile.ZipFile(bare) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/METADATA"):
                data = wheel_metadata(data.decode(), extras).encode()
            new.writestr(entry, data)
    out = target.folder / "repaired"
    shutil.rmtree(out, ignore_errors=True)
    openmp = target.folder / "openmp"  # nothing else of the old Debian may be loaded here
    openmp.mkdir(exist_ok=True)
    shutil.copy(target.libraries / "libgomp.so.1", openmp)
    found_there = {**env, "LD_LIBRARY_PATH": str(openmp)}
    repair = ["auditwheel", "repair", "--zip-compression-level", "9", "-w", out, changed]
    outside = [word for library in (LOADER, *wheel_cuda.OUTSIDE) for word in ("--exclude", library)]
    run(*repair, *outside, env=found_there, quiet=True)
    changed.unlink()
    (wheel,) = out.glob("*.whl")
    for older in DIST.glob("-".join([*bare.stem.split("-")[:3], f"*_{target.machine}.whl"])):
        older.unlink()
    DIST.mkdir(exist_ok=True)
    return Path(shutil.move(wheel, DIST / wheel.name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=TARGETS, default="x86_64")
    parser.add_argument("--vulkan", action="store_true", help="with a plugin for GPUs that have a Vulkan driver")
    parser.add_argument("--cuda", action="store_true", help="with a plugin for NVIDIA's GPUs")
    parser.add_argument("pythons", metavar="PYTHON", nargs="*", default=[sys.executable])
    args = parser.parse_args()
    target = target_for(args.machine)
    target.folder.mkdir(parents=True, exist_ok=True)
    env = compiler_environment(target)
    plugins = [*vulkan_arguments(target, args.vulkan), *wheel_cuda.cuda_arguments(target, args.cuda)]
    folder = bundle(target, env, plugins)
    extras, most = {}, MAX_MB
    if args.cuda:
        shutil.copy(wheel_cuda.runtime_license(), folder / "llama_cpp" / "LICENSE.cudart")
        extras, most = {"cuda": wheel_cuda.CUBLAS}, MAX_MB_CUDA
    for python in args.pythons:
        wheel = finished(target, bare_wheel(target, python, folder, env), env, extras)
        mb = wheel.stat().st_size / 1e6
        print(f"{wheel.relative_to(ROOT)}: {mb:.1f} MB")
        if mb > most:
            raise SystemExit(f"make_wheel: {wheel.name} has {mb:.0f} MB; more than {most} are not wanted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
