"""Programs that make a wheel, and where it is made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "wheel"


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


def _archive() -> list[str]:
    """That of this machine's Debian without security updates, whose archive drops old releases. Elsewhere mmdebstrap's
    own choice."""
    if shutil.which("apt-get") is None:
        return []
    own = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", quiet=True).split()
    return [uri for uri in own if uri.rstrip("/").endswith("/debian")][:1]


def unpack_debian(release: str, architecture: str, packages: str, folder: Path) -> None:
    """These packages of a Debian release, and what they depend on, unpacked and not installed."""
    if shutil.which("mmdebstrap") is None:
        raise SystemExit("make_wheel: mmdebstrap is missing, which unpacks packages of Debian's releases; "
                         "run apt-get install mmdebstrap")  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--quiet", "--variant=extract", f"--architectures={architecture}", f"--include={packages}"]
    run("mmdebstrap", *options, release, folder, *_archive())
