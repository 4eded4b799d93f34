"""Builds duo and installs it into this environment. Its extension is compiled only if none of the same sources,
llama.cpp, interpreter and compiler was kept (tools/build_facts.py).

    python tools/install_duo.py BUILD_FOLDER [--compile]

--compile: Python is told to write no bytecode when it runs, so pip writes that of all packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from build_cache import VARIABLE, BuildCache
from build_facts import ROOT, extension_facts, facts_for

SOURCES = [ROOT / name for name in ("CMakeLists.txt", "pyproject.toml", "csrc")]


def copied(kept: Path | None, folder: Path) -> Path | None:
    """For the time that pip takes: other clones may remove what is kept."""
    try:
        return None if kept is None else Path(shutil.copy(kept, folder))
    except OSError:
        return None


def install(extension: Path | None, build: str, *, compiles: bool) -> int:
    """Returns pip's exit code. extension: in place of one that is compiled."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-v", "--no-build-isolation"]
    if not compiles:  # Python compiles what is imported, when it is: of forty packages that is little
        pip.append("--no-compile")
    settings = [f"build-dir={build}", f"cmake.define.DUO_EXTENSION={extension or ''}"]
    chosen = [word for s in settings for word in ("-C", s)]
    progress = [sys.executable, ROOT / "tools" / "build_progress.py", ROOT / "build" / "duo.log", "duo"]
    return subprocess.run([*progress, *pip, *chosen, ".[server,remote]"], cwd=ROOT, check=False).returncode


def main() -> int:
    cache = BuildCache("extension")
    facts = facts_for(cache, "duo", lambda: extension_facts(os.environ, SOURCES))
    kept = cache.find(facts) if facts else None
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kept-", dir=ROOT / "build") as folder:
        extension = copied(kept, Path(folder))
        if extension is not None:
            print(
                f"Installing duo's extension as it was compiled here before ({kept}; {VARIABLE}=off compiles it)",
                flush=True,
            )
        code = install(extension, sys.argv[1], compiles="--compile" in sys.argv[2:])
    if code == 0 and facts and extension is None:
        compiled = Path(sysconfig.get_path("platlib"), "duo", f"_core{sysconfig.get_config_var('EXT_SUFFIX')}")
        if why := cache.keep(facts, compiled):
            print(why)
    return code


if __name__ == "__main__":
    sys.exit(main())
