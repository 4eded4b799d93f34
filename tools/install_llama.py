"""Installs llama-cpp-python into this environment: a wheel that was built on this machine before, or from its sources.

    CMAKE_ARGS="$(python3 tools/cmake_args.py)" python tools/install_llama.py llama-cpp-python==VERSION [--again]

A wheel is used again if version, CMAKE_ARGS, compilers, processor, C library and interpreter are the same
(tools/build_facts.py); only what was compiled here is kept. --again: the AMX code of what is installed crashes, so what
was compiled here takes its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from build_cache import VARIABLE, BuildCache
from build_facts import ROOT, facts_for, llama_facts


def _tool(name: str, *arguments: str | Path) -> bool:
    return subprocess.run([sys.executable, ROOT / "tools" / name, *arguments], check=False).returncode == 0


def _pip(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def built(folder: Path, requirement: str, *options: str) -> Path:
    """The wheel, as pip makes it. pip's own cache does not know what a wheel was built with. Raises SystemExit."""
    wheel = _pip("wheel", "-v", "--no-deps", "--no-cache-dir", *options, "-w", folder, requirement)
    environment = Path(sys.prefix).name
    log = ROOT / "build" / ("llama.log" if environment == ".venv" else f"llama-{environment}.log")
    if not _tool("build_progress.py", log, "llama.cpp", *wheel):
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
    facts = facts_for(cache, "llama.cpp", lambda: llama_facts(requirement, os.environ))
    kept = cache.find(facts) if facts else None
    if kept is not None and installed(kept) and has_backends("--load"):
        print(f"Installed llama.cpp as it was built here before ({kept}; {VARIABLE}=off compiles it)")
        return 0
    print(f"Installing {requirement} (compiles llama.cpp, some minutes)", flush=True)
    from_sources = ("--no-binary", requirement.partition("==")[0])
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="llama-", dir=ROOT / "build") as made:
        folder = Path(made)  # of this process: another make may compile another llama.cpp
        wheel = built(folder, requirement, *(from_sources if facts or again else ()))
        if not installed(wheel):
            return 1
        if not has_backends():
            if facts or again:
                return 1
            print("It lacks what CMAKE_ARGS names; compiling it")  # an index has such a wheel
            wheel.unlink()
            wheel = built(folder, requirement, *from_sources)
            if not installed(wheel) or not has_backends():
                return 1
        if facts and (why := cache.keep(facts, wheel)):
            print(why)
    return 0


if __name__ == "__main__":
    sys.exit(main())
