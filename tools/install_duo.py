"""Builds duo and installs it into this environment. Its extension is compiled only if none of the same sources,
llama.cpp, interpreter and compiler was kept (tools/build_facts.py).

    python tools/install_duo.py BUILD_FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from build_cache import VARIABLE, BuildCache
from build_facts import ROOT, UnknownFactsError, extension_facts

SOURCES = [ROOT / name for name in ("CMakeLists.txt", "pyproject.toml", "csrc")]


def main() -> int:
    cache = BuildCache("extension")
    try:
        facts = extension_facts(os.environ, SOURCES) if cache.folder is not None else []
    except UnknownFactsError as e:
        print(f"The build of duo is not kept for other clones: {e}")
        facts = []
    kept = cache.find(facts) if facts else None
    if kept is not None:
        print(
            f"Installing duo's extension as it was compiled here before ({kept}; {VARIABLE}=off compiles it)",
            flush=True,
        )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-v", "--no-build-isolation"]
    pip.append("--no-compile")  # Python compiles what is imported, when it is: of forty packages that is little
    settings = [f"build-dir={sys.argv[1]}", f"cmake.define.DUO_EXTENSION={kept or ''}"]
    chosen = [word for s in settings for word in ("-C", s)]
    progress = [sys.executable, ROOT / "tools" / "build_progress.py", ROOT / "build" / "duo.log", "duo"]
    done = subprocess.run([*progress, *pip, *chosen, ".[server,remote]"], cwd=ROOT, check=False)
    if done.returncode == 0 and facts and kept is None:
        compiled = Path(sysconfig.get_path("platlib"), "duo", f"_core{sysconfig.get_config_var('EXT_SUFFIX')}")
        if why := cache.keep(facts, compiled):
            print(why)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
