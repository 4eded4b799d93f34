"""Images without a registry: Debian from its archive (mmdebstrap), and podman with a store of its own.

DUO_TEST_IMAGES names a folder that keeps the images, so that a second run builds none.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wheels import BARE, ROOT

DEBIAN = "localhost/debian:bookworm-slim"  # what deploy/Dockerfile begins with
IMAGE = "localhost/duo:latest"
PROGRAMS = ("podman", "mmdebstrap")
INSTALL = "podman runc netavark aardvark-dns catatonit iptables mmdebstrap"  # of Debian


def _limit(kind: int, most: int) -> str:
    """No more than this process has, which not every root may raise."""
    hard = resource.getrlimit(kind)[1]
    n = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return f"{n}:{n}"


class Podman:
    """Containers and images in a folder, which other users of the machine do not see."""

    def __init__(self, folder: Path) -> None:
        """folder: it exists."""
        missing = [p for p in PROGRAMS if shutil.which(p) is None]
        if os.geteuid() != 0 or missing:
            pytest.skip(f"needs root and {' and '.join(PROGRAMS)} (apt-get install {INSTALL})")
        self._folder = folder
        limits = f'"nofile={_limit(resource.RLIMIT_NOFILE, 4096)}", "nproc={_limit(resource.RLIMIT_NPROC, 4096)}"'
        self._settings = folder / "containers.conf"
        self._settings.write_text(
            f"[containers]\ndefault_ulimits = [{limits}]\n"
            '[network]\nnetwork_backend = "netavark"\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        )

    @property
    def command(self) -> list[str]:
        return ["podman", "--root", str(self._folder / "store"), "--runroot", str(self._folder / "run")]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": str(self._settings)}

    def run(self, *words: str | Path, check: bool = True, within: float = 900) -> str:
        """What podman prints."""
        done = subprocess.run(
            [*self.command, *map(str, words)],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=within, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"podman {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def inspect(self, name: str) -> dict[str, Any]:
        (found,) = json.loads(self.run("inspect", name))
        assert isinstance(found, dict)
        return found

    def debian(self) -> str:
        """The image that stands for Debian's own."""
        archive = self._folder / "debian.tar"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", BARE, str(archive)], check=True)
        self.run("import", "-q", archive, DEBIAN)
        archive.unlink()
        return DEBIAN

    def built(self, wheel: Path, debian: str) -> str:
        """The image of deploy/Dockerfile from a wheel. Python packages come from this machine's index, beforehand."""
        house = self._folder / "wheelhouse"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "-d", str(house)]
        python = ["--python-version", "3.11", "--only-binary", ":all:"]
        subprocess.run([*pip, *python, f"{wheel}[remote,server]"], check=True)
        settings = self._folder / "pip.conf"
        settings.write_text("[global]\nno-index = true\nfind-links = /wheelhouse\n")
        self.run(
            "build", "-q", "--isolation", "chroot", "--network", "host", "-f", "deploy/Dockerfile", "-t", IMAGE,
            "--format", "docker",  # which has health checks
            "--build-arg", f"BUILD_IMAGE={debian}", "--build-arg", f"RUN_IMAGE={debian}",
            "--build-arg", f"WHEEL={wheel.relative_to(ROOT)}",
            "-v", f"{house}:/wheelhouse:ro", "-v", f"{settings}:/etc/pip.conf:ro", ROOT,
        )  # fmt: skip
        return IMAGE

    def has(self, image: str) -> bool:
        return bool(self.run("images", "-q", image).strip())

    def end(self, *, keep: bool) -> None:
        """keep: the images."""
        self.run("pod", "rm", "-f", "-a", check=False)
        self.run("rm", "-f", "-a", "-t", "1", check=False)
        self.run("volume", "rm", "-f", "-a", check=False)
        if not keep:
            self.run("system", "reset", "-f", check=False)
