"""Installs llama-cpp-python into this environment: a wheel that was built on this machine before, or from its sources.

    CMAKE_ARGS="$(python3 tools/cmake_args.py)" python tools/install_llama.py llama-cpp-python==VERSION [--again]

A wheel is used again if version, CMAKE_ARGS, compilers, processor, C library and interpreter are the same
(tools/build_facts.py). --again: the AMX code of what is installed crashes, so it is compiled here, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from build_cache import VARIABLE, BuildCache
from build_facts import ROOT, UnknownFactsError, llama_facts

COMPILED = "compiled"  # a fact of those that --again has compiled


def _tool(name: str, *arguments: str | Path) -> bool:
    return subprocess.run([sys.executable, ROOT / "tools" / name, *arguments], check=False).returncode == 0


def _pip(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def built(requirement: str, *options: str) -> Path:
    """The wheel, as pip makes it. pip's own cache does not know what a wheel was built with. Raises SystemExit."""
    folder = ROOT / "build" / "llama"
    shutil.rmtree(folder, ignore_errors=True)
    wheel = _pip("wheel", "-v", "--no-deps", "--no-cache-dir", *options, "-w", folder, requirement)
    if not _tool("build_progress.py", ROOT / "build" / "llama.log", "llama.cpp", *wheel):
        raise SystemExit(1)
    return next(folder.glob("*.whl"))


def installed(wheel: Path) -> bool:
    """Installs it, without what it needs: duo's own installation brings that. Returns whether pip could."""
    return subprocess.run(_pip("install", "-q", "--force-reinstall", "--no-deps", "--no-index", wheel)).returncode == 0


def has_backends(*options: str) -> bool:
    return _tool("check_llama.py", os.environ.get("CMAKE_ARGS", ""), *options)


def main() -> int:
    requirement, again = sys.argv[1], "--again" in sys.argv[2:]
    cache = BuildCache("llama")
    try:
        facts = llama_facts(requirement, os.environ) if cache.folder is not None else []
    except UnknownFactsError as e:
        print(f"The build of llama.cpp is not kept for other clones: {e}")
        facts = []
    compiled = cache.find([*facts, COMPILED]) if facts else None
    if again and compiled is not None:
        print("This llama.cpp was compiled here already; duo does not use its AMX code")
        return 0
    kept = compiled or (cache.find(facts) if facts else None)
    if kept is not None and not again and installed(kept) and has_backends("--load"):
        print(f"Installed llama.cpp as it was built here before ({kept}; {VARIABLE}=off compiles it)")
        return 0
    print(f"Installing {requirement} (compiles llama.cpp, some minutes)", flush=True)
    from_sources = ("--no-binary", requirement.partition("==")[0])
    wheel = built(requirement, *(from_sources if again else ()))
    if not installed(wheel):
        return 1
    if not again and not has_backends():  # an index has such a wheel
        print("It lacks what CMAKE_ARGS names; compiling it")
        wheel = built(requirement, *from_sources)
        if not installed(wheel) or not has_backends():
            return 1
    if facts and (why := cache.keep([*facts, COMPILED] if again else facts, wheel)):
        print(why)
    return 0


if __name__ == "__main__":
    sys.exit(main())
