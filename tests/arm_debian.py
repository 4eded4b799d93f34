"""A Debian for 64-bit ARM that is unpacked and not installed, and a Python in it that runs on an emulated processor."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import need_program
from wheels import BARE

PLATFORMS = [f"manylinux_2_{n}_aarch64" for n in (17, 27, 28)] + ["manylinux2014_aarch64"]


class ArmDebian:
    """An environment with a wheel and what it needs."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        """folder: it exists."""
        emulator = need_program("arm", "qemu-aarch64-static")
        if shutil.which("mmdebstrap") is None:
            pytest.skip("needs mmdebstrap (apt-get install mmdebstrap)")
        debian, environment = folder / "debian", folder / "environment"
        unpack = ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64", "--include=python3"]
        subprocess.run([*unpack, BARE, str(debian)], check=True)
        self._python = environment / "bin" / "python"
        self._python.parent.mkdir(parents=True)
        # A script, so that Python can start itself, too: this machine's kernel cannot run programs for ARM.
        python = debian / "usr" / "bin" / "python3.11"
        self._python.write_text(f'#!/bin/sh\nexec {emulator} -L {debian} -0 "$0" {python} "$@"\n')
        self._python.chmod(0o755)
        (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion = 3.11\n")
        site = environment / "lib" / "python3.11" / "site-packages"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"]
        only = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11", "--abi", "cp311"]
        platforms = [word for p in PLATFORMS for word in ("--platform", p)]
        subprocess.run([*pip, *only, *platforms, "--target", str(site), str(wheel)], check=True)
        self._folder = folder

    def run(self, *words: str, processor: str = "max") -> str:
        """What Python prints on this processor."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_", "VIRTUAL_ENV", "DUO_"))}
        env = kept | {"QEMU_CPU": processor, "XDG_CACHE_HOME": str(self._folder / "cache")}
        command = [str(self._python), *words]
        done = subprocess.run(command, cwd=self._folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
