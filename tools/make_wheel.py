"""Makes duo_llama-*.whl with llama.cpp inside, in dist/: no compiler and no llama-cpp-python are needed to install it.

    python tools/make_wheel.py [PYTHON ...]     # an interpreter each; without: the one that runs this

x86-64 Linux. It takes llama.cpp from the sdist of the llama-cpp-python that pyproject.toml names, and an old glibc from
Debian (mmdebstrap), so that the wheel runs on older systems, too. `make wheel` calls it in an environment that has what
it needs. Everything is kept in build/wheel; a second run compiles what has changed.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = Path(__file__).with_name("wheel")
BUILD = ROOT / "build" / "wheel"
DIST = ROOT / "dist"
ADVICE = runpy.run_path(str(ROOT / "src" / "duo" / "build_advice.py"))
OLD_DEBIAN = "bullseye"  # glibc 2.31
MAX_MB = 60
ARCH = "x86_64-linux-gnu"


def run(*command: str | Path, env: Mapping[str, str] | None = None, quiet: bool = False) -> str:
    """What it printed. quiet: it is shown only if the command fails. Raises SystemExit: it failed."""
    out, err = (subprocess.PIPE, subprocess.STDOUT) if quiet else (None, None)
    words = [str(c) for c in command]
    done = subprocess.run(words, cwd=ROOT, env=env, stdout=out, stderr=err, text=True, check=False)
    if done.returncode != 0:
        said = f"make_wheel: {' '.join(words)} failed with {done.returncode}"
        raise SystemExit("\n".join([said, *filter(None, [done.stdout])]))
    return done.stdout or ""


def progress(what: str, *command: str | Path, env: Mapping[str, str]) -> None:
    """Compiles: a line now and then, and the compiler's own words in build/wheel."""
    run(sys.executable, ROOT / "tools" / "build_progress.py", BUILD / f"{what}.log", what, *command, env=env)


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


def sysroot() -> Path:
    """Headers and libraries of an older Debian, and links to what the compiler has of its own."""
    folder = BUILD / "sysroot"
    include, libraries = folder / "usr" / "include", folder / "usr" / "lib" / ARCH
    if (libraries / "older_glibc.o").exists():
        return folder
    if shutil.which("mmdebstrap") is None:
        raise SystemExit("make_wheel: mmdebstrap is missing, which brings an old glibc; run apt-get install mmdebstrap")
    shutil.rmtree(folder, ignore_errors=True)
    run("mmdebstrap", "--quiet", "--variant=extract", "--include=libc6-dev,libgomp1", OLD_DEBIAN, folder)
    for link in list(folder.rglob("*")):
        if link.is_symlink() and os.readlink(link).startswith("/"):  # they would lead to this machine's libraries
            to = folder / os.readlink(link).lstrip("/")
            link.unlink()
            link.symlink_to(os.path.relpath(to, link.parent))
    (include / "c++").symlink_to("/usr/include/c++")
    for headers in (Path("/usr/include") / ARCH).iterdir():
        if headers.name == "c++" or headers.name.startswith("python3"):
            (include / ARCH / headers.name).symlink_to(headers)
    (libraries / "libgomp.so").symlink_to("libgomp.so.1")
    # As GCC's own: what the old libgcc_s lacks is in the new libgcc.a.
    (libraries / "libgcc_s.so").write_text(f"GROUP ( /lib/{ARCH}/libgcc_s.so.1 -lgcc )\n")
    run("gcc", "-c", "-O2", "-fPIC", f"--sysroot={folder}", OWN / "older_glibc.c", "-o", libraries / "older_glibc.o")
    return folder


def compiler_environment() -> dict[str, str]:
    """For CMake: the toolchain and what it reads; the programs of this environment first."""
    lossy = ADVICE["loses_tile_stores"](("g++",))
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CMAKE_TOOLCHAIN_FILE": str(OWN / "older_glibc.cmake"),
        "CMAKE_ARGS": "",
        "CMAKE_GENERATOR": "Ninja",
        "DUO_SYSROOT": str(sysroot()),
        "DUO_WHEEL_FLAGS": ADVICE["KEEP_STORES"] if lossy else "",
    }


def bundle(env: Mapping[str, str]) -> Path:
    """The folder for DUO_LLAMA_BUNDLE: llama.cpp, built once for all interpreters."""
    build, folder = BUILD / "llama", BUILD / "bundle"
    run("cmake", "-S", OWN, "-B", build, f"-DDUO_LLAMA_SOURCE={llama_sources()}/vendor/llama.cpp", env=env, quiet=True)
    progress("llama.cpp", "cmake", "--build", build, env=env)
    shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--strip", "--prefix", folder, env=env, quiet=True)
    notice = Path(env["DUO_SYSROOT"]) / "usr" / "share" / "doc" / "libgomp1" / "copyright"
    shutil.copy(notice.resolve(), folder / "llama_cpp" / "LICENSE.libgomp")
    return folder


def build_tools(python: str) -> Path:
    """An interpreter that can build duo: the given one, in an environment of its own."""
    tag = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", quiet=True).strip()
    folder = BUILD / f"python{tag}"
    if not (folder / "done").exists():
        run(python, "-m", "venv", folder)
        pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        run(*pip, "pip>=23.1", "scikit-build-core>=0.11", "pybind11>=3.0")
        (folder / "done").touch()
    return folder / "bin" / "python"


def bare_wheel(python: str, folder: Path, env: Mapping[str, str]) -> Path:
    """duo with the bundle, as the build backend makes it."""
    out = BUILD / "bare"
    shutil.rmtree(out, ignore_errors=True)
    pip = [build_tools(python), "-m", "pip", "--disable-pip-version-check", "wheel", "-v", "--no-build-isolation"]
    settings = [f"cmake.define.DUO_LLAMA_BUNDLE={folder}", "build-dir=build/wheel/duo-{wheel_tag}"]
    settings.append("cmake.define.DUO_FAST_BUILD=OFF")  # so each file shows whether it includes what it uses
    chosen = [word for s in settings for word in ("-C", s)]
    progress("duo", *pip, "--no-deps", "-w", out, *chosen, ROOT, env=env)
    return next(out.glob("*.whl"))


def wheel_metadata(metadata: str) -> str:
    """The wheel needs what `duo serve` needs. llama-cpp-python is an extra: only its chat formats need it."""
    if "\nRequires-Dist: llama-cpp-python==" not in metadata:
        raise ValueError("the metadata does not name llama-cpp-python")
    made: list[str] = []
    for line in metadata.split("\n"):
        requirement, _, marker = line.partition(";")
        if line.startswith("Requires-Dist: llama-cpp-python=="):
            made += ["Provides-Extra: llama-cpp", f'{line}; extra == "llama-cpp"']
        elif line.startswith("Requires-Dist: ") and re.fullmatch(r"\s*extra == .server.\s*", marker):
            made += [requirement, line]
        else:
            made.append(line)
    return "\n".join(made)


def finished(bare: Path, env: Mapping[str, str]) -> Path:
    """The wheel as it is distributed: its metadata, and libgomp inside."""
    changed = BUILD / bare.name
    with zipfile.ZipFile(bare) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/METADATA"):
                data = wheel_metadata(data.decode()).encode()
            new.writestr(entry, data)
    out = BUILD / "repaired"
    shutil.rmtree(out, ignore_errors=True)
    openmp = BUILD / "openmp"  # nothing else of the old Debian may be loaded here
    openmp.mkdir(exist_ok=True)
    shutil.copy(Path(env["DUO_SYSROOT"]) / "usr" / "lib" / ARCH / "libgomp.so.1", openmp)
    found_there = {**env, "LD_LIBRARY_PATH": str(openmp)}
    run("auditwheel", "repair", "--zip-compression-level", "9", "-w", out, changed, env=found_there, quiet=True)
    changed.unlink()
    (wheel,) = out.glob("*.whl")
    for older in DIST.glob("-".join([*bare.stem.split("-")[:3], "*.whl"])):
        older.unlink()
    DIST.mkdir(exist_ok=True)
    return Path(shutil.move(wheel, DIST / wheel.name))


def main() -> int:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SystemExit("make_wheel: wheels are made on x86-64 Linux only; elsewhere install from the sources")
    BUILD.mkdir(parents=True, exist_ok=True)
    env = compiler_environment()
    folder = bundle(env)
    for python in sys.argv[1:] or [sys.executable]:
        wheel = finished(bare_wheel(python, folder, env), env)
        mb = wheel.stat().st_size / 1e6
        print(f"{wheel.relative_to(ROOT)}: {mb:.1f} MB")
        if mb > MAX_MB:
            raise SystemExit(f"make_wheel: {wheel.name} has {mb:.0f} MB; more than {MAX_MB} are not wanted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
